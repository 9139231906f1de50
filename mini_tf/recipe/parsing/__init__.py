"""Parse and validate recipes: YAML, merging of levels, errors with their locations."""
