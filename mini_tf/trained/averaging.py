"""The mean of several checkpoints of one run, which often does better than each of them.

Source: Vaswani et al. 2017, arXiv:1706.03762, section 6.1: the last 5 checkpoints of the base models, 20 of the big ones.
Costs memory for one checkpoint and for its sum in float64, however many there are.
"""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from torch import Tensor

from mini_tf.recipe import reading
from mini_tf.run import tensors
from mini_tf.run.checkpoint import MODEL, Checkpoints
from mini_tf.run.tensors import TensorSpec, specs
from mini_tf.system.errors import UsageFault


def average(
    folder: Path,
    which: int | str,
    expected: Mapping[str, TensorSpec] | None = None,
    plain: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda weights: weights,
    buffers: Collection[str] = (),
) -> dict[str, Tensor]:
    """The mean parameters of a run's last `which` checkpoints that are kept, or, of `best`, of those kept for their validation loss.

    Each is read as one alone would be: RunFault where one is damaged or not of the `expected` tensors, by default those of the
    first. It goes through `plain` before it is added, for a mean of products is another than the product of means. UsageFault where
    fewer are kept. `buffers`, of which a mean would mean nothing (a random projection, a count), are those of the newest of them, as
    is whatever is no floating number.
    """
    checkpoints = Checkpoints.of(folder)
    steps = sorted(steps_of(folder, which), reverse=True)
    sums: dict[str, Tensor] = {}
    found: dict[str, TensorSpec] = {}
    for step in steps:
        path = checkpoints.find_verified(step).folder / MODEL
        model = tensors.read(path, expected)
        tensors.check_finite(model, path)
        expected = specs(model)
        model = plain(model)
        found = specs(model)
        averaged = {name for name, spec in found.items() if spec.dtype.is_floating_point and name not in buffers}
        for name, tensor in model.items():
            if name not in sums:  # of what is not averaged the first stays, which is the newest
                sums[name] = tensor.double() if name in averaged else tensor
            elif name in averaged:
                sums[name] += tensor
        del model  # before the next is read
    return {name: sums.pop(name).div_(len(steps)).to(spec.dtype) if name in averaged else sums.pop(name) for name, spec in found.items()}


def steps_of(folder: Path, which: int | str) -> list[int]:
    """The steps whose checkpoints `average` takes; UsageFault where fewer are kept."""
    checkpoints = Checkpoints.of(folder)
    checkpoints.find("last")  # refuses a run that has none
    return _best(checkpoints, folder) if which == "best" else _last(checkpoints, folder, str(which))


def _last(checkpoints: Checkpoints, folder: Path, n: str) -> list[int]:
    """The steps of the newest `n` of those kept, whatever they are kept for."""
    if not re.fullmatch("[1-9][0-9]{0,11}", n):
        raise UsageFault(f"--average {n[:40]!r}: must be how many of the last checkpoints, at least 1, or `best`")
    steps = checkpoints.steps()
    if len(steps) < int(n):
        hint = "a larger checkpoint.keep_last keeps more while training"
        raise UsageFault(f"--average {n}: {folder} keeps {len(steps)} checkpoint{'s' * (len(steps) > 1)}", hint=hint)
    return steps[: int(n)]


def _best(checkpoints: Checkpoints, folder: Path) -> list[int]:
    """The steps of as many as the recipe keeps for their validation loss, the lowest first."""
    keep_best = reading.read(folder).recipe.checkpoint.keep_best
    kept = [checkpoints.find(step) for step in checkpoints.steps()]  # `by_score` would pass over what it cannot read
    steps = [one.step for one in sorted(kept, key=lambda one: one.rank) if one.score is not None][:keep_best]
    if not steps:
        hint = "a larger checkpoint.keep_best keeps them while training; `--average N` takes the last N"
        raise UsageFault(f"--average best: {folder} keeps no checkpoint for its validation loss", hint=hint)
    return steps
