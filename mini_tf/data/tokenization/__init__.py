"""Encode text to token ids and decode them."""
