"""Trained tensors out of a run folder; nothing is changed there, and nothing read before it fits the model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mini_tf.errors import RunFault
from mini_tf.run import manifest, tensors
from mini_tf.run.checkpoint import COUNTERS, MODEL, OPTIMIZER, STATE, Checkpoint, Checkpoints
from mini_tf.run.disk import Disk
from mini_tf.run.tensors import Spec


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds: tensors by name, and counters as they were handed to `Run.save`."""

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Tensor]
    counters: dict[str, Any]


def load(checkpoint: Checkpoint, expected: Mapping[str, Spec] | None = None) -> Saved:
    """Everything in a checkpoint; RunFault unless its model's tensors are the `expected` ones (`specs(state_dict)`)."""
    model = tensors.read(checkpoint.folder / MODEL, expected)
    tensors.refuse_not_finite(model, checkpoint.folder / MODEL)
    optimizer, state = (tensors.read(checkpoint.folder / name) for name in (OPTIMIZER, STATE))
    counters = json.loads((checkpoint.folder / COUNTERS).read_bytes())
    return Saved(checkpoint.step, model, optimizer, state, counters)


def load_model(folder: Path, step: int | str | None = None, expected: Mapping[str, Spec] | None = None) -> dict[str, Tensor]:
    """A run's weights: of a step, `last` or `best`; None is model.safetensors, the best so far.

    A run that was interrupted before it published one gives its best checkpoint. RunFault where there is nothing usable.
    """
    path = folder / MODEL
    if step is not None or not path.exists():
        path = choose(folder, "best" if step is None else step).folder / MODEL
    model = tensors.read(path, expected)
    tensors.refuse_not_finite(model, path)
    return model


def choose(folder: Path, which: int | str) -> Checkpoint:
    """The checkpoint of a step (a number, or its digits), `last` or `best`."""
    if which not in ("last", "best") and not str(which).isdecimal():
        raise RunFault(f"no such checkpoint: {which!r}; a step is a number, `last` or `best`", where=[str(folder)])
    return Checkpoints(folder / "checkpoints", manifest.read(folder).run_id, Disk()).choose(which)
