"""Load tensors from a run folder, read-only, after checking their names, shapes and dtypes; average checkpoints.

Averaging takes the memory of one checkpoint and one float64 sum, for any number of checkpoints. Source: Vaswani et al.
2017, arXiv:1706.03762, section 6.1: the last 5 checkpoints (base) or 20 (big).
"""

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mini_tf.recipe import reading
from mini_tf.run import manifest, tensors
from mini_tf.run.checkpoint import COUNTERS, MODEL, OBJECTIVE, OPTIMIZER, STATE, Checkpoint, Checkpoints, rank
from mini_tf.run.disk import FileHashes
from mini_tf.run.manifest import Manifest
from mini_tf.run.tensors import ExpectedTensors, TensorSpec, specs
from mini_tf.system import strict_json
from mini_tf.system.errors import RunFault, UsageFault
from mini_tf.system.numbers import counted
from mini_tf.system.safe_files import read_small_file

_LARGEST_COUNT = 1 << 62
_INTEGER_COUNTERS = ("step", "tokens", "skips", "skips_in_a_row", "good_steps", "metrics.jsonl", "timing.jsonl")


@dataclass(frozen=True)
class LoadedCheckpoint:
    """The content of a checkpoint: tensors by name, and the counters of `Run.save`."""

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Tensor]
    counters: dict[str, Any]
    folder: Path
    objective: dict[str, Tensor]

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Convert errors while the checkpoint is restored to RunFault: its content does not match the run."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise RunFault.located(str(self.folder), f"does not match this run: {reason}") from error


def load(checkpoint: Checkpoint, expected: ExpectedTensors = ExpectedTensors()) -> LoadedCheckpoint:
    """Load a checkpoint; RunFault unless its tensors match the `expected` specs."""
    folder = checkpoint.folder
    model = tensors.read(folder / MODEL, expected.model)
    optimizer = tensors.read(folder / OPTIMIZER, expected.optimizer, expected.unread)
    state = tensors.read(folder / STATE)
    for contents, name in ((model, MODEL), (optimizer, OPTIMIZER), (state, STATE)):
        tensors.check_finite(contents, folder / name)
    counters = _read_counters(folder / COUNTERS)
    if counters.get("step", checkpoint.step) != checkpoint.step:
        fault = f"{folder / COUNTERS}: step is {str(counters['step'])[:40]}, not {checkpoint.step}"
        raise RunFault(fault, where=[str(folder)])
    objective = _read_objective(checkpoint, expected.objective)
    return LoadedCheckpoint(checkpoint.step, model, optimizer, state, counters, folder, objective)


def load_objective(folder: Path, which: int | str, expected: Mapping[str, TensorSpec]) -> dict[str, Tensor]:
    """The objective's tensors at a step, `last` or `best`; RunFault if they do not match `expected`."""
    return _read_objective(find_checkpoint(folder, which), expected) if expected else {}


def _read_objective(checkpoint: Checkpoint, expected: Mapping[str, TensorSpec] | None) -> dict[str, Tensor]:
    path = checkpoint.folder / OBJECTIVE
    if OBJECTIVE not in checkpoint.sha256:
        tensors.check_specs(expected or {}, {}, path)
        return {}
    objective = tensors.read(path, expected)
    tensors.check_finite(objective, path)
    return objective


def _read_counters(path: Path) -> dict[str, Any]:
    try:
        counters = strict_json.read(read_small_file(path))
        if not isinstance(counters, dict):
            raise ValueError("it is not a JSON object")
        invalid = invalid_counters(counters)
    except OSError as error:
        raise RunFault.located(str(path), f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise RunFault.located(str(path), f"not valid counters: {error}") from error
    if invalid:
        raise RunFault.located(str(path), f"invalid counter {invalid[0][:40]}")
    return dict(counters)


def invalid_counters(counters: Mapping[str, Any]) -> list[str]:
    """The names of counters with invalid values."""
    return [
        name
        for name, value in counters.items()
        if not _is_counter(value) or (name in _INTEGER_COUNTERS and type(value) is not int)
    ]


def _is_counter(value: Any) -> bool:
    """Whether it is a finite number from 0, or a float as a hex string."""
    if isinstance(value, str):
        try:
            float.fromhex(value)
        except (ValueError, OverflowError):
            return False
        return True
    return isinstance(value, (int, float)) and 0 <= value < _LARGEST_COUNT


def load_model(
    folder: Path, step: int | str | None = None, expected: Mapping[str, TensorSpec] | None = None
) -> dict[str, Tensor]:
    """A run's weights at a step, `last` or `best`; None = model.safetensors, else the best checkpoint.

    RunFault if there are none or they are damaged.
    """
    path = folder / MODEL
    published = step is None and path.exists()
    if not published:
        path = find_checkpoint(folder, "best" if step is None else step).folder / MODEL
    model = tensors.read(path, expected)
    tensors.check_finite(model, path)
    if published and not _is_valid_model(folder):
        hint = "`--step best` loads the best checkpoint; the training command restores the file"
        raise RunFault.about(path, "is damaged: its sha256 differs from that in run.json", hint)
    return model


def _is_valid_model(folder: Path) -> bool:
    """Whether model.safetensors is intact. Waits up to 0.5 s for a process that is publishing.

    A process killed between writing the file and run.json has published a checkpoint at least as good, or the
    `publishing` hash.
    """
    hashes = FileHashes()
    for _ in range(5):
        if is_published(folder, record := manifest.read(folder), hashes):
            return True
        time.sleep(0.1)
    before = record.model or {"score": None, "step": -1}
    newer = [
        checkpoint
        for checkpoint in Checkpoints.of(folder).list_valid()
        if checkpoint.rank <= rank(before["score"], before["step"])
    ]
    with suppress(OSError):
        return hashes.sha256(folder / MODEL) in [record.publishing, *(checkpoint.sha256[MODEL] for checkpoint in newer)]
    return False


def is_published(folder: Path, record: Manifest, hashes: FileHashes) -> bool:
    """Whether model.safetensors has the sha256 in run.json."""
    if record.model is None:
        return False
    try:
        return hashes.sha256(folder / MODEL) == str(record.model["sha256"])
    except OSError:
        return False


def find_checkpoint(folder: Path, which: int | str) -> Checkpoint:
    """The verified checkpoint of a step (int or digits), `last` or `best`."""
    return Checkpoints.of(folder).find_verified(which)


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
    of_model: dict[str, TensorSpec] = {}
    for step in steps:
        path = checkpoints.find_verified(step).folder / MODEL
        model = tensors.read(path, expected)
        tensors.check_finite(model, path)
        expected = specs(model)
        model = transform(model)
        of_model = specs(model)
        averaged = {name for name, spec in of_model.items() if spec.dtype.is_floating_point and name not in buffers}
        for name, tensor in model.items():
            if name not in sums:  # others come from the first checkpoint read, the newest
                sums[name] = tensor.double() if name in averaged else tensor
            elif name in averaged:
                sums[name] += tensor
        del model  # before the next one is read
    return {
        name: sums.pop(name).div_(len(steps)).to(spec.dtype) if name in averaged else sums.pop(name)
        for name, spec in of_model.items()
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
        raise UsageFault(f"--average {n}: {folder} keeps {counted(len(steps), 'checkpoint')}", hint=hint)
    return steps[: int(n)]


def _best(checkpoints: Checkpoints, folder: Path) -> list[int]:
    """The `checkpoint.keep_best` best steps by score, the best first."""
    keep_best = reading.read(folder).recipe.checkpoint.keep_best
    # `by_score` would skip unreadable checkpoints.
    ranked = sorted(map(checkpoints.find, checkpoints.steps()), key=lambda checkpoint: checkpoint.rank)
    steps = [checkpoint.step for checkpoint in ranked if checkpoint.score is not None][:keep_best]
    if not steps:
        hint = "a larger checkpoint.keep_best keeps them while training; `--average N` averages the last N"
        raise UsageFault(f"--average best: {folder} keeps no checkpoint with a validation metric", hint=hint)
    return steps
