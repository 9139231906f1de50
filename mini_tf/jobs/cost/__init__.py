"""Cost of a run: FLOPs of its steps, memory, time. Measured, without keeping results."""
