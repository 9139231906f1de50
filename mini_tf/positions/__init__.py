"""Kinds: how a model knows where a token stands; a file's name is the word a recipe writes."""
