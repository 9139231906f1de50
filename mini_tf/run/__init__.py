"""Everything under outputs/: run folders, their checkpoints, their metrics."""
