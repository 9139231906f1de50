"""Word alignments by cross-attention."""
