"""TensorBoard event files of a run: the same figures as metrics.jsonl, of which they are made anew whenever the run goes on.

Only on request (`--tensorboard`), never from a recipe, since they decide nothing. tensorboardX writes them: it needs protobuf alone,
where tensorboard's own writer brings a web server along.
"""

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mini_tf.run.metrics import read_lines
from mini_tf.system.errors import Unavailable

FOLDER = "tensorboard"


class Events:
    """folder: of the run. Unavailable where tensorboardX is not installed."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise Unavailable("--tensorboard needs tensorboardX", hint="pip install 'minitf[tensorboard]'") from None
        self._folder, self._writer_of, self._writer = folder, SummaryWriter, None

    def add(self, report: Mapping[str, Any]) -> None:
        """A line of metrics.jsonl that has just been written there; before the first one all that are there already."""
        if self._writer is not None:
            self._write(report)
            return
        self.write_all()

    def write_all(self) -> None:
        """All points of metrics.jsonl, and nothing else."""
        # What stands behind a checkpoint that a run goes on from was cut from metrics.jsonl, but not from event files.
        shutil.rmtree(self._folder / FOLDER, ignore_errors=True)
        self._writer = self._writer_of(str(self._folder / FOLDER), flush_secs=10)
        for line in read_lines(self._folder / "metrics.jsonl"):
            self._write(line)

    def _write(self, report: Mapping[str, Any]) -> None:
        assert self._writer is not None
        for name, value in report.items():
            if name != "step" and isinstance(value, int | float) and math.isfinite(value):
                self._writer.add_scalar(name, value, report["step"])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
