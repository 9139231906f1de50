"""The step that ended a run as diverged, kept so that it can be replayed: the folder `diverged` in the run's own.

It holds the weights before the step, the state of a stream before it, and facts.json. Written as checkpoints are: into a
temporary folder, fsync, rename; a dump of an earlier start is replaced.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError
from torch import Tensor

from mini_tf.run import tensors
from mini_tf.run.checkpoint import MODEL, OBJECTIVE, STATE
from mini_tf.run.disk import Disk, placing
from mini_tf.run.loading import strange_counts
from mini_tf.run.tensors import Spec
from mini_tf.system.errors import RunFault
from mini_tf.system.plain_file import read_record
from mini_tf.training.loop import DivergedStep
from mini_tf.training.machine.device import Setup

FORMAT = 1
FOLDER = "diverged"
FACTS = "facts.json"


class Machine(BaseModel):
    """`Setup.settings` of the process that met the step."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    device: str
    precision: str
    compile: bool
    threads: PositiveInt
    micro_batch_size: PositiveInt


class Facts(BaseModel):
    """What was wrong and where; steps, micro-batches, rows and documents count from 1.

    micro_batch: None = the whole step. parameters: whose gradient is not finite. counters: `Progress.counters` before the step.
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
    setup: Machine

    @classmethod
    def of(cls, fault: DivergedStep, setup: Setup) -> "Facts":
        """What there is to tell of a step that ended training."""
        micro = None if fault.problem.micro is None else fault.problem.micro + 1
        return cls(
            step=fault.report.step,
            micro_batch=micro,
            what=fault.problem.what,
            message=fault.message,
            rows=fault.data.rows,
            documents=fault.data.documents,
            parameters=list(fault.problem.parameters),
            counters=fault.at.counters(),
            setup=Machine(**setup.settings),
        )


class Dump(NamedTuple):
    """A step as it stood before it was learnt from."""

    facts: Facts
    model: dict[str, Tensor]
    state: dict[str, Tensor]
    objective: dict[str, Tensor]


def write(
    disk: Disk, run: Path, facts: Facts, model: Mapping[str, Tensor], state: Mapping[str, Tensor], objective: Mapping[str, Tensor]
) -> Path:
    """Keep a step in a run's folder; OSError where the disk does not take it, and nothing is left then."""
    folder = run / FOLDER
    with placing(disk, folder) as temporary:
        if temporary.exists():
            disk.remove(temporary)
        disk.mkdir(temporary)
        disk.write(temporary / MODEL, tensors.pack(model))
        disk.write(temporary / STATE, tensors.pack(state))
        if objective:
            disk.write(temporary / OBJECTIVE, tensors.pack(objective))
        disk.write(temporary / FACTS, facts.model_dump_json(indent=1).encode())
        disk.sync(temporary)
        if folder.exists():
            disk.remove(folder)
    return folder


def read(run: Path, expected: Mapping[str, Spec], expected_objective: Mapping[str, Spec]) -> Dump:
    """The step that a run kept; RunFault where it is damaged, or the weights of model or objective are not the `expected` ones."""
    facts, folder = read_facts(run), run / FOLDER
    objective = tensors.read(folder / OBJECTIVE, expected_objective) if expected_objective else {}
    return Dump(facts, tensors.read(folder / MODEL, expected), tensors.read(folder / STATE), objective)


def read_facts(run: Path) -> Facts:
    """What is told of the step; RunFault where there is none, or it cannot be read."""
    path = run / FOLDER / FACTS
    if not path.parent.is_dir():
        raise RunFault(f"{run} did not diverge: no step of it was kept", hint="`minitf runs show` tells how it ended", where=[str(run)])
    try:
        facts = Facts.model_validate_json(read_record(path))
    except OSError as error:
        raise RunFault(f"{path}: {error.strerror}", where=[str(path)]) from error
    except (ValidationError, ValueError) as error:
        raise RunFault(f"{path} is damaged: {str(error).splitlines()[0]}", where=[str(path)]) from error
    if facts.format > FORMAT:
        raise RunFault(f"{path} was written by format {facts.format}; this minitf reads format {FORMAT}", where=[str(path)])
    strange = strange_counts(facts.counters)
    if strange or facts.counters.get("step") != facts.step - 1:
        raise RunFault(f"{path} is damaged: counters: {(strange or ['step'])[0][:40]} is no such count", where=[str(path)])
    return facts
