"""Trained tensors out of a run folder; nothing is changed there, and nothing read before it fits the model."""

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mini_tf.errors import RunFault
from mini_tf.run import manifest, tensors
from mini_tf.run.checkpoint import COUNTERS, MODEL, OPTIMIZER, STATE, Checkpoint, Checkpoints
from mini_tf.run.disk import Disk
from mini_tf.run.manifest import Manifest
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
    published = step is None and path.exists()
    if not published:
        path = choose(folder, "best" if step is None else step).folder / MODEL
    model = tensors.read(path, expected)
    tensors.refuse_not_finite(model, path)
    if published and not _settled(folder):
        raise RunFault(
            f"{path} is damaged: it is not the file that run.json speaks of",
            hint="`--step best` takes the checkpoint; the command that trained it puts the file right",
            where=[str(path)],
        )
    return model


def _settled(folder: Path) -> bool:
    """Whether the published file is sound; a run that is just publishing another one is waited for."""
    for _ in range(5):
        if is_published(folder, manifest.read(folder)):
            return True
        time.sleep(0.1)
    return False


def is_published(folder: Path, record: Manifest) -> bool:
    """Whether model.safetensors is, to the bit, what was published there."""
    path = folder / MODEL
    if record.model is None or not path.is_file():
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() == str(record.model["sha256"])


def choose(folder: Path, which: int | str) -> Checkpoint:
    """The checkpoint of a step (a number, or its digits), `last` or `best`."""
    if which not in ("last", "best") and not re.fullmatch("[0-9]{1,12}", str(which)):
        raise RunFault(f"no such checkpoint: {which!r}; a step is a number, `last` or `best`", where=[str(folder)])
    return Checkpoints(folder / "checkpoints", manifest.read(folder).run_id, Disk()).choose(which)
