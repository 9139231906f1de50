"""Code that runs without minitf: the definitions that a model needs, put together from our own sources."""
