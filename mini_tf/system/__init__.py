"""What everything stands on: errors, limits, files, caches, safe text, seeds."""
