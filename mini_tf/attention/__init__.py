"""Mixers, such as self-attention; the name of a file is the word in a recipe."""
