"""A dump of the step at which a run diverged, for `minitf inspect crash`: the folder `diverged` of the run folder.

It holds the weights and the recurrent state before the step, and facts.json. It is written like a checkpoint: temporary
folder, fsync, rename. An earlier dump is replaced.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError
from torch import Tensor

from mini_tf.run import tensors
from mini_tf.run.checkpoint import MODEL, OBJECTIVE, STATE
from mini_tf.run.disk import Disk, atomic_replace
from mini_tf.run.loading import invalid_counters
from mini_tf.run.manifest import check_format
from mini_tf.run.tensors import CheckpointTensors, TensorSpec
from mini_tf.system.errors import RunFault
from mini_tf.system.safe_files import read_small_file

FORMAT = 1
FOLDER = "diverged"
INFO = "facts.json"


class DeviceSettings(BaseModel):
    """`Setup.settings` of the process whose step diverged."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    device: str
    precision: str
    compile: bool
    threads: PositiveInt
    micro_batch_size: PositiveInt


class DivergenceInfo(BaseModel):
    """The diverged value and its location; steps, micro-batches, rows and documents count from 1.

    micro_batch: None = the whole step. parameters: names of those with a gradient that is not finite. counters:
    `Progress.counters` before the step.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    format: int = FORMAT
    step: Annotated[int, Field(ge=1, lt=10**12)]
    micro_batch: int | None
    what: str
    message: str
    rows: list[int]
    documents: list[int]
    parameters: list[str]
    counters: dict[str, int | float | str]
    setup: DeviceSettings


class DivergenceDump(NamedTuple):
    """The info of a diverged step, and the tensors before it."""

    info: DivergenceInfo
    model: dict[str, Tensor]
    state: dict[str, Tensor]
    objective: dict[str, Tensor]


def write(disk: Disk, run: Path, info: DivergenceInfo, before: CheckpointTensors) -> None:
    """Write the dump into a run folder; on OSError nothing is left."""
    folder = run / FOLDER
    with atomic_replace(disk, folder) as temporary:
        if temporary.exists():
            disk.remove(temporary)
        disk.mkdir(temporary)
        disk.write(temporary / MODEL, tensors.Serialized(before.model))
        disk.write(temporary / STATE, tensors.Serialized(before.state))
        if before.objective:
            disk.write(temporary / OBJECTIVE, tensors.Serialized(before.objective))
        disk.write(temporary / INFO, info.model_dump_json(indent=1).encode())
        disk.sync(temporary)
        if folder.exists():
            disk.remove(folder)


def read(run: Path, expected: Mapping[str, TensorSpec], expected_objective: Mapping[str, TensorSpec]) -> DivergenceDump:
    """Read the dump; RunFault if it is damaged or its tensors do not match the `expected` specs."""
    info, folder = read_info(run), run / FOLDER
    objective = tensors.read(folder / OBJECTIVE, expected_objective) if expected_objective else {}
    return DivergenceDump(info, tensors.read(folder / MODEL, expected), tensors.read(folder / STATE), objective)


def read_info(run: Path) -> DivergenceInfo:
    """Read facts.json of the dump; RunFault if there is none or it is damaged."""
    path = run / FOLDER / INFO
    if not path.parent.is_dir():
        raise RunFault.about(run, "has no dump of a diverged step", "`minitf runs show` shows how the run ended")
    try:
        info = DivergenceInfo.model_validate_json(read_small_file(path))
    except OSError as error:
        raise RunFault.located(str(path), f"{error.strerror}") from error
    except (ValidationError, ValueError) as error:
        raise RunFault.about(path, f"is damaged: {str(error).splitlines()[0]}") from error
    check_format(path, info.format, FORMAT)
    invalid = invalid_counters(info.counters)
    if invalid or info.counters.get("step") != info.step - 1:
        raise RunFault.about(path, f"is damaged: invalid counter {(invalid or ['step'])[0][:40]}")
    return info
