"""Sets of runs: several seeds, and the folds of a cross-validation."""
