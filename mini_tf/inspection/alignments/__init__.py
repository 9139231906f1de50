"""Alignments of words by cross-attention."""
