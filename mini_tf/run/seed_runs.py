"""What a run of several seeds writes of the runs that lie in it: a line of figures for each, and the model of one of them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mini_tf.run import loading, manifest
from mini_tf.run.checkpoint import MODEL
from mini_tf.run.disk import replace, storing
from mini_tf.run.folder import MODEL_TEXTS, Run
from mini_tf.run.metrics import to_line
from mini_tf.system.errors import RunFault
from mini_tf.system.plain_file import read_record


def record_seeds(run: Run, reports: Iterable[Mapping[str, Any]]) -> None:
    """metrics.jsonl of a run of several seeds, as a whole: a line for each that is done."""
    with storing(f"recording the seeds of {run.folder}"):
        replace(run.disk, run.folder / "metrics.jsonl", "".join(f"{to_line(report)}\n" for report in reports).encode())


def adopt(run: Run, other: Path) -> None:
    """Take over a finished run's model, with all that is needed to use it. RunFault where it is not what that run published."""
    record = manifest.read(other)
    if not loading.is_published(other, record, run.checkpoints.hashes):
        raise RunFault(f"{other / MODEL} is lost or damaged", hint="the same command puts it right", where=[str(other / MODEL)])
    with storing(f"taking over {MODEL} of {other}"):
        for name in MODEL_TEXTS:
            if (other / name).exists():
                replace(run.disk, run.folder / name, read_record(other / name))
        replace(run.disk, run.folder / MODEL, (other / MODEL).read_bytes())
    run.update(step=record.step, best=record.best, model=record.model, auto=record.auto)
