"""Comparison of runs at equal cost: FLOPs, training time, or steps. Reads run folders without torch."""
