"""Which weights a view looks at: the checkpoints that a run keeps, and what identifies those of one step."""

from pathlib import Path
from typing import NamedTuple

from mini_tf.run import loading, manifest
from mini_tf.run.checkpoint import MODEL, Checkpoints


class Weights(NamedTuple):
    """The step after which they were saved, and the sha256 of their file."""

    step: int
    sha256: str


def weights_of(folder: Path, step: int | str | None) -> Weights:
    """Those that `load_model` reads for this step. RunFault where there are none."""
    published = manifest.read(folder).model
    if step is None and published is not None and (folder / MODEL).exists():
        return Weights(int(published["step"]), str(published["sha256"]))
    checkpoint = loading.find_checkpoint(folder, "best" if step is None else step)
    return Weights(checkpoint.step, checkpoint.sha256[MODEL])


def origin(folder: Path, step: int | str | None) -> str:
    """The run and the step of these weights, as titles of pictures have them."""
    return f"run {folder.name}, step {weights_of(folder, step).step}"


def kept_steps(folder: Path) -> list[int]:
    """The steps of the checkpoints that are kept, newest first."""
    return Checkpoints.of(folder).steps()
