"""Initialization, adapters, and operations on all weights of a model."""
