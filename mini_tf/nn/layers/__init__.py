"""Layers of blocks, embeddings and heads."""
