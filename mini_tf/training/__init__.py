"""Training: plan, loop, optimizer, learning rate, evaluation, machine."""
