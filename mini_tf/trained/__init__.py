"""Models out of run folders."""
