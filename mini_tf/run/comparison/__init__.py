"""Comparison of runs at equal cost: FLOPs by formula, training time, or steps. Reads run folders without torch."""
