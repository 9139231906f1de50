"""From the text of a recipe to its values: YAML, levels on top of each other, faults with their places."""
