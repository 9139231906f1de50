"""Files of a set of runs (seeds or folds): the metrics of all its runs, and the model of one of them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mini_tf.run import loading, manifest
from mini_tf.run.checkpoint import MODEL
from mini_tf.run.disk import replace, storage_errors
from mini_tf.run.folder import MODEL_TEXT_FILES, Run
from mini_tf.run.metric_files import to_line
from mini_tf.system.errors import RunFault
from mini_tf.system.safe_files import read_blocks, read_small_file


def write_metrics(run: Run, reports: Iterable[Mapping[str, Any]]) -> None:
    """Replace metrics.jsonl of a set: one line per finished run."""
    with storage_errors(f"recording the runs of {run.folder}"):
        replace(run.disk, run.folder / "metrics.jsonl", "".join(f"{to_line(report)}\n" for report in reports).encode())


def copy_model(run: Run, other: Path) -> None:
    """Copy the published model, config and tokenizers of a finished run; RunFault if missing or damaged."""
    record = manifest.read(other)
    if not loading.is_published(other, record, run.checkpoints.hashes):
        fault = f"{other / MODEL} is missing or damaged"
        raise RunFault(fault, hint="the same command restores it", where=[str(other / MODEL)])
    with storage_errors(f"copying {MODEL} of {other}"):
        for name in MODEL_TEXT_FILES:
            if (other / name).exists():
                replace(run.disk, run.folder / name, read_small_file(other / name))
        replace(run.disk, run.folder / MODEL, read_blocks(other / MODEL))
    run.update(
        step=record.step,
        best=record.best,
        model=record.model,
        auto=record.auto,
        model_run=other.name,
        train_examples=record.train_examples,
    )
