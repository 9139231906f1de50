"""Basics of all other packages: errors, limits, files, caches, safe text, seeds."""
