"""The machine: device, memory, and settings chosen by measurement."""
