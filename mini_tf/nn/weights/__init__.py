"""What is done to all weights of a model: initialization, adapters, outlines without memory."""
