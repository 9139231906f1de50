"""Curves over steps, time, length or number of examples."""
