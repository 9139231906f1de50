"""Training: batch plan, training loop, optimizer, schedule, evaluation, device settings."""
