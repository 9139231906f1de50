"""Models from run folders."""
