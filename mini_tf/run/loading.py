"""Trained tensors out of a run folder; nothing is changed there, and nothing read before it fits the model."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mini_tf.run import manifest, tensors
from mini_tf.run.checkpoint import COUNTERS, MODEL, OBJECTIVE, OPTIMIZER, STATE, Checkpoint, Checkpoints, rank
from mini_tf.run.hashes import Hashes
from mini_tf.run.manifest import Manifest
from mini_tf.run.tensors import Spec
from mini_tf.system.errors import RunFault, UsageFault
from mini_tf.system.plain_file import read_record

_LARGEST_COUNT = 1 << 62
_WHOLE = ("step", "tokens", "skips", "skips_in_a_row", "good_steps", "metrics.jsonl", "timing.jsonl")


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds: tensors by name, and counters as they were handed to `Run.save`."""

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Tensor]
    counters: dict[str, Any]
    folder: Path
    objective: dict[str, Tensor]

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        """While a program takes the parts over: what does not fit there is the checkpoint's fault, so RunFault."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            raise RunFault(f"{self.folder}: does not fit this run: {what}", where=[str(self.folder)]) from error


def load(
    checkpoint: Checkpoint,
    expected: Mapping[str, Spec] | None = None,
    expected_optimizer: Mapping[str, Spec] | None = None,
    expected_objective: Mapping[str, Spec] | None = None,
) -> Saved:
    """Everything in a checkpoint; RunFault unless its model, optimizer and objective have the `expected` tensors (`specs(...)`)."""
    folder = checkpoint.folder
    model = tensors.read(folder / MODEL, expected)
    optimizer = tensors.read(folder / OPTIMIZER, expected_optimizer)
    state = tensors.read(folder / STATE)
    for found, name in ((model, MODEL), (optimizer, OPTIMIZER), (state, STATE)):
        tensors.refuse_not_finite(found, folder / name)
    counters = _read_counters(folder / COUNTERS)
    if counters.get("step", checkpoint.step) != checkpoint.step:
        raise RunFault(f"{folder / COUNTERS}: counts step {str(counters['step'])[:40]}, not {checkpoint.step}", where=[str(folder)])
    return Saved(checkpoint.step, model, optimizer, state, counters, folder, _own(checkpoint, expected_objective))


def load_objective(folder: Path, which: int | str, expected: Mapping[str, Spec]) -> dict[str, Tensor]:
    """The objective's own network at a step, `last` or `best`, of `expected` tensors, which may be none; RunFault where it is gone."""
    return _own(choose(folder, which), expected) if expected else {}


def _own(checkpoint: Checkpoint, expected: Mapping[str, Spec] | None) -> dict[str, Tensor]:
    path = checkpoint.folder / OBJECTIVE
    if OBJECTIVE not in checkpoint.sha256:
        tensors.match(expected or {}, {}, path)
        return {}
    found = tensors.read(path, expected)
    tensors.refuse_not_finite(found, path)
    return found


def _read_counters(path: Path) -> dict[str, Any]:
    try:
        counters = json.loads(read_record(path))
        strange = strange_counts(counters)
    except OSError as error:
        raise RunFault(f"{path}: cannot be read: {error.strerror}", where=[str(path)]) from error
    except (ValueError, AttributeError, RecursionError) as error:
        raise RunFault(f"{path}: not the counters of a run", where=[str(path)]) from error
    if strange:
        raise RunFault(f"{path}: {strange[0][:40]} is no count", where=[str(path)])
    return dict(counters)


def strange_counts(counters: Mapping[str, Any]) -> list[str]:
    """The names of those that no run can have counted."""
    return [name for name, value in counters.items() if not _is_counter(value) or (name in _WHOLE and type(value) is not int)]


def _is_counter(value: Any) -> bool:
    """A whole number from 0, a finite one, or any number in hex digits."""
    if isinstance(value, str):
        try:
            float.fromhex(value)
        except (ValueError, OverflowError):
            return False
        return True
    return isinstance(value, (int, float)) and 0 <= value < _LARGEST_COUNT


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
    """Whether the published file is sound; a run that is just publishing another one is waited for.

    One that was killed before it could tell of it has published a checkpoint that is no worse, or what it said it would.
    """
    hashes = Hashes()
    for _ in range(5):
        if is_published(folder, record := manifest.read(folder), hashes):
            return True
        time.sleep(0.1)
    before = record.model or {"score": None, "step": -1}
    newer = [one for one in Checkpoints.of(folder).own() if one.rank <= rank(before["score"], before["step"])]
    with suppress(OSError):
        return hashes.of(folder / MODEL) in [record.publishing, *(one.sha256[MODEL] for one in newer)]
    return False


def is_published(folder: Path, record: Manifest, hashes: Hashes) -> bool:
    """Whether model.safetensors is, to the bit, what was published there."""
    if record.model is None:
        return False
    try:
        return hashes.of(folder / MODEL) == str(record.model["sha256"])
    except OSError:
        return False


def choose(folder: Path, which: int | str) -> Checkpoint:
    """The checkpoint of a step (a number, or its digits), `last` or `best`."""
    if which not in ("last", "best") and not re.fullmatch("[0-9]{1,12}", str(which)):
        raise UsageFault(f"no such checkpoint: {str(which)[:40]!r}; a step is a number, `last` or `best`")
    return Checkpoints.of(folder).choose(which)
