"""Run folders under outputs/, their checkpoints and metrics."""
