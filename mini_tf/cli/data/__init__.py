"""`minitf data`: show, stats, check."""
