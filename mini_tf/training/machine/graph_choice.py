"""Whether the steps of a run are captured in CUDA graphs: wherever they can be, unless the recipe says otherwise."""

from mini_tf.recipe.recipe import Recipe
from mini_tf.system.errors import Unavailable
from mini_tf.training.machine.device import Setup


def decide_graphs(setup: Setup, recipe: Recipe, processes: int) -> Setup:
    """The setup with `graphs` decided. Raises Unavailable if the recipe wants graphs that cannot be."""
    wanted, obstacle = recipe.runtime.graphs, _obstacle(setup, recipe, processes)
    if wanted is True and obstacle:
        raise Unavailable(f"runtime.graphs: {obstacle}", hint="runtime.graphs=auto")
    if setup.device.type != "cuda":
        return setup
    reason = "set in the recipe" if wanted != "auto" else obstacle or "no launch of single kernels"
    return setup.decided("graphs", wanted is not False and obstacle is None, reason)


def _obstacle(setup: Setup, recipe: Recipe, processes: int) -> str | None:
    """Why steps cannot be captured; None: they can, unless the first steps show that the model waits for the device."""
    runtime, optimizer = recipe.runtime, recipe.optimizer
    if setup.device.type != "cuda":
        return f"CUDA graphs need a GPU of NVIDIA, the device is {setup.device}"
    if processes > 1:
        return f"{processes} processes exchange gradients in a step"
    if runtime.reduce == "tree":
        return "runtime.reduce is tree"
    if recipe.train.stream:
        return "train.stream hands a state from row to row"
    if not optimizer.CAPTURABLE:
        return f"the optimizer {optimizer.kind} is not capturable"
    return None
