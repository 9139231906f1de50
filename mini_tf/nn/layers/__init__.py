"""Layers that blocks and models are made of."""
