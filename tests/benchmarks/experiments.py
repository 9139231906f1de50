"""What the scripts behind the pages' figures share: figures are kept in a file, which the same command completes.

Means are over the seeds, with the 95 % interval of Student's t.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mini_tf.run import manifest
from mini_tf.scores.intervals import mean_interval

LAST_STEP = ("eval.every_steps=1000000", "log.samples=0", "checkpoint.keep_last=1", "runtime.compile=false")
"""Nothing is chosen during training: the last step counts."""


class Figures(dict[str, Any]):
    """The figures of a file, by name."""

    def __init__(self, file: Path) -> None:
        super().__init__(json.loads(file.read_text()) if file.exists() else {})
        file.parent.mkdir(parents=True, exist_ok=True)
        self.file = file

    def once(self, name: str, measure: Callable[..., Any], *arguments: Any) -> None:
        """Measure a figure that the file lacks, and write it at once."""
        if name not in self:
            self[name] = measure(*arguments)
            self.file.write_text(json.dumps(self, indent=1))
            print(name, self[name], file=sys.stderr, flush=True)


def minitf(*words: str, cwd: Path | None = None) -> dict[str, Any]:
    """The metrics that a command prints with --json."""
    command = [sys.executable, "-m", "mini_tf", *words, "-q", "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=cwd)
    metrics: dict[str, Any] = json.loads(done.stdout)["metrics"]
    return metrics


def flops_of(run: Path) -> float:
    """FLOPs of the training steps of a run."""
    record = manifest.read(run)
    assert record.flops_per_step is not None, "FLOPs change with the steps"
    return float(record.flops_per_step * record.step)


def shown(values: Sequence[float]) -> str:
    """The mean and its 95 % interval."""
    mean = mean_interval(values)
    return f"{mean.mean:.4f}" + ("" if mean.half is None else f" +- {mean.half:.4f}")


def difference(values: Sequence[float], others: Sequence[float]) -> str:
    """The mean difference seed by seed, and its 95 % interval."""
    return shown([value - other for value, other in zip(values, others, strict=True)])
