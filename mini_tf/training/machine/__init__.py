"""The machine that computes: device, memory, and what is decided by measuring."""
