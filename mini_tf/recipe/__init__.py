"""Recipes: settings, strict YAML, overrides and presets. Does not import torch."""
