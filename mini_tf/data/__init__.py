"""From files to rows of token ids."""
