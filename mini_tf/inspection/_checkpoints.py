"""Checkpoints of a run: the kept steps, and the identity of the weights of one step."""

from pathlib import Path
from typing import NamedTuple

from mini_tf.run import loading, manifest
from mini_tf.run.checkpoint import MODEL, Checkpoints


class WeightsId(NamedTuple):
    """Step after which weights were saved, and sha256 of their file."""

    step: int
    sha256: str


def weights_id(folder: Path, step: int | str | None) -> WeightsId:
    """The weights that `load_model` loads for this step. Raises RunFault if there are none."""
    published = manifest.read(folder).model
    if step is None and published is not None and (folder / MODEL).exists():
        return WeightsId(int(published["step"]), str(published["sha256"]))
    checkpoint = loading.find_checkpoint(folder, "best" if step is None else step)
    return WeightsId(checkpoint.step, checkpoint.sha256[MODEL])


def run_and_step(folder: Path, step: int | str | None) -> str:
    """The run and the step of its weights, for titles."""
    return f"run {folder.name}, step {weights_id(folder, step).step}"


def kept_steps(folder: Path) -> list[int]:
    """Steps of the kept checkpoints, newest first."""
    return Checkpoints.of(folder).steps()
