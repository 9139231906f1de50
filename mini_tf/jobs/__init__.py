"""What commands do: training from a recipe to a run, cost, proof of resume."""
