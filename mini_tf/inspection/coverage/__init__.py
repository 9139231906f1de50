"""Coverage of a source by cross-attention, and what generated texts repeat, say and omit."""
