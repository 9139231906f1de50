"""Attention maps of the heads on a text."""
