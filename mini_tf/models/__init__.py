"""Model architectures; the name of a file is the word in a recipe."""
