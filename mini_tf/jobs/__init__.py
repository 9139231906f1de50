"""The work that commands order: from a recipe to a run."""
