"""The average of several checkpoints of one run.

Source: Vaswani et al. 2017, arXiv:1706.03762, section 6.1: the last 5 checkpoints of the base models, 20 of the big
ones. Needs memory for one checkpoint and for the sum in float64.
"""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from torch import Tensor

from mini_tf.recipe import reading
from mini_tf.run import tensors
from mini_tf.run.checkpoint import MODEL, Checkpoints
from mini_tf.run.tensors import Spec, specs
from mini_tf.system.errors import UsageFault


def average(
    folder: Path,
    which: int | str,
    expected: Mapping[str, Spec] | None = None,
    plain: Callable[[dict[str, Tensor]], dict[str, Tensor]] = lambda weights: weights,
    buffers: Collection[str] = (),
) -> dict[str, Tensor]:
    """The mean parameters of the last `which` kept checkpoints, or, for `best`, of those kept for their validation
    loss.

    RunFault if one is damaged or has other tensors than `expected` (default: those of the first). Each goes through
    `plain` first, since a mean of products is not the product of means. UsageFault if fewer are kept. `buffers` and
    tensors that are not floating-point are those of the newest.
    """
    checkpoints = Checkpoints.of(folder)
    steps = sorted(steps_of(folder, which), reverse=True)
    sums: dict[str, Tensor] = {}
    found: dict[str, Spec] = {}
    for step in steps:
        path = checkpoints.choose(step).folder / MODEL
        model = tensors.read(path, expected)
        tensors.refuse_not_finite(model, path)
        expected = specs(model)
        model = plain(model)
        found = specs(model)
        averaged = {name for name, spec in found.items() if spec.dtype.is_floating_point and name not in buffers}
        for name, tensor in model.items():
            if name not in sums:  # of tensors that are not averaged, the newest remain
                sums[name] = tensor.double() if name in averaged else tensor
            elif name in averaged:
                sums[name] += tensor
        del model  # before the next one is read
    return {name: sums.pop(name).div_(len(steps)).to(spec.dtype) if name in averaged else sums.pop(name) for name, spec in found.items()}


def steps_of(folder: Path, which: int | str) -> list[int]:
    """The steps that `average` uses; UsageFault if fewer are kept."""
    checkpoints = Checkpoints.of(folder)
    checkpoints.find("last")  # refuses a run without any
    return _best(checkpoints, folder) if which == "best" else _last(checkpoints, folder, str(which))


def _last(checkpoints: Checkpoints, folder: Path, n: str) -> list[int]:
    """The newest `n` steps kept, for whatever reason."""
    if not re.fullmatch("[1-9][0-9]{0,11}", n):
        raise UsageFault(f"--average {n[:40]!r}: must be a number of checkpoints, at least 1, or `best`")
    steps = checkpoints.steps()
    if len(steps) < int(n):
        hint = "train with a larger checkpoint.keep_last"
        raise UsageFault(f"--average {n}: {folder} keeps {len(steps)} checkpoint{'s' * (len(steps) > 1)}", hint=hint)
    return steps[: int(n)]


def _best(checkpoints: Checkpoints, folder: Path) -> list[int]:
    """The steps kept for their validation loss, the lowest first."""
    keep_best = reading.read(folder).recipe.checkpoint.keep_best
    kept = [checkpoints.find(step) for step in checkpoints.steps()]  # `by_score` would skip unreadable ones
    steps = [one.step for one in sorted(kept, key=lambda one: one.rank) if one.score is not None][:keep_best]
    if not steps:
        hint = "train with a larger checkpoint.keep_best; `--average N` uses the last N"
        raise UsageFault(f"--average best: {folder} keeps no checkpoint for its validation loss", hint=hint)
    return steps
