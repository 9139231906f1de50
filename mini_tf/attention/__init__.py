"""Kinds: mixers, which let tokens read each other; a file's name is the word a recipe writes."""
