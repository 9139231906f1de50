"""Searches over settings of a recipe: what is tried, in which order, in which processes, and what came out."""
