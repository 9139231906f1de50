"""What a run would take: the work of its steps, its memory, and the time of all that it does. Measured; nothing is kept."""
