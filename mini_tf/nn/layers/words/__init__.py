"""The words of a text, from token ids."""
