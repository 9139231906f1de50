"""Shared by all commands: the terminal, files, options."""
