"""What a recipe costs, measured on a few steps: FLOPs, memory, time. No run folder is written."""
