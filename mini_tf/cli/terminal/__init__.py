"""What all commands share: the terminal, files, options."""
