"""Data: from files to rows of token ids."""
