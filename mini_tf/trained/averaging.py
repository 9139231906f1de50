"""Checkpoint averaging: the mean parameters of several checkpoints of one run.

Source: Vaswani et al. 2017, arXiv:1706.03762, section 6.1: the last 5 checkpoints (base) or 20 (big).
Memory: one checkpoint and one float64 sum, for any number of checkpoints.
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
    transform: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda weights: weights,
    buffers: Collection[str] = (),
) -> dict[str, Tensor]:
    """The mean parameters of a run's last `which` checkpoints, or of its `best` ones (eval.best).

    expected: specs of the tensors, by default those of the first checkpoint read. transform: applied to each checkpoint
    before summing (an adapter is merged first: the mean of products differs from the product of means). buffers: not
    averaged (a random projection, a count); like non-float tensors they come from the newest checkpoint. RunFault if a
    checkpoint is damaged or does not match `expected`, UsageFault if there are too few.
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
        model = transform(model)
        found = specs(model)
        averaged = {name for name, spec in found.items() if spec.dtype.is_floating_point and name not in buffers}
        for name, tensor in model.items():
            if name not in sums:  # others come from the first checkpoint read, the newest
                sums[name] = tensor.double() if name in averaged else tensor
            elif name in averaged:
                sums[name] += tensor
        del model  # before the next one is read
    return {
        name: sums.pop(name).div_(len(steps)).to(spec.dtype) if name in averaged else sums.pop(name)
        for name, spec in found.items()
    }


def steps_of(folder: Path, which: int | str) -> list[int]:
    """The steps of the checkpoints that `average` reads; UsageFault if there are too few."""
    checkpoints = Checkpoints.of(folder)
    checkpoints.find("last")  # raises if the run has none
    return _best(checkpoints, folder) if which == "best" else _last(checkpoints, folder, str(which))


def _last(checkpoints: Checkpoints, folder: Path, n: str) -> list[int]:
    """The newest `n` steps of those that the run keeps, also where it was killed before it removed the others."""
    if not re.fullmatch("[1-9][0-9]{0,11}", n):
        raise UsageFault(f"--average {n[:40]!r}: must be the number of last checkpoints, at least 1, or `best`")
    settings = reading.read(folder).recipe.checkpoint
    left_over = checkpoints.superfluous(settings.keep_last, settings.keep_best)
    steps = [step for step in checkpoints.steps() if step not in left_over]
    if len(steps) < int(n):
        hint = "train with a larger checkpoint.keep_last"
        raise UsageFault(f"--average {n}: {folder} keeps {len(steps)} checkpoint{'s' * (len(steps) > 1)}", hint=hint)
    return steps[: int(n)]


def _best(checkpoints: Checkpoints, folder: Path) -> list[int]:
    """The `checkpoint.keep_best` best steps by score, the best first."""
    keep_best = reading.read(folder).recipe.checkpoint.keep_best
    found = [checkpoints.find(step) for step in checkpoints.steps()]  # `by_score` would skip unreadable checkpoints
    steps = [one.step for one in sorted(found, key=lambda one: one.rank) if one.score is not None][:keep_best]
    if not steps:
        hint = "a larger checkpoint.keep_best keeps them while training; `--average N` averages the last N"
        raise UsageFault(f"--average best: {folder} keeps no checkpoint with a validation metric", hint=hint)
    return steps
