"""Kinds: arrangements of stacks with an embedding and a head; a file's name is the word a recipe writes."""
