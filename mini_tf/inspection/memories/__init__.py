"""Feed-forward layers as key-value memories: what triggers each memory, and which tokens its value votes for.

Source: Geva et al. 2021, arXiv:2012.14913.
"""
