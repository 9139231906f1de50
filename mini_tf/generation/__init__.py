"""Text generation and mask filling with trained models."""
