"""Attention maps: measured, drawn, written."""
