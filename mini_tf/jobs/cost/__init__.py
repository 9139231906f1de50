"""Cost of a run, measured on a few steps: FLOPs, memory, time. No run folder is written."""
