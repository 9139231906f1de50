"""Device, memory, and settings that are chosen by timing."""
