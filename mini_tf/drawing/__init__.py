"""Numbers to pictures; no torch."""
