"""Word vectors: the rows of the token embedding, without a sentence."""
