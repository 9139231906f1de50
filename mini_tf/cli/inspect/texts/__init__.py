"""Views of the tokens of a text."""
