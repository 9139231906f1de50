"""TensorBoard event files with the metrics of metrics.jsonl, from which they are rebuilt when a run continues.

Enabled by `--tensorboard`; not a recipe key, since they do not affect the result. Written by tensorboardX, which needs
only protobuf.
"""

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mini_tf.run.metrics import read_lines
from mini_tf.system.errors import Unavailable

FOLDER = "tensorboard"


class TensorBoardWriter:
    """Writes the event files of a run folder; Unavailable if tensorboardX is not installed."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise Unavailable("--tensorboard needs tensorboardX", hint="pip install 'minitf[tensorboard]'") from None
        self._folder, self._writer_of, self._writer = folder, SummaryWriter, None

    def write_all(self) -> None:
        """Rebuild the event files from metrics.jsonl."""
        # A process that was killed leaves points after its last checkpoint, or lacks the last ones, which are buffered.
        shutil.rmtree(self._folder / FOLDER, ignore_errors=True)
        self._writer = self._writer_of(str(self._folder / FOLDER), flush_secs=10)
        for line in read_lines(self._folder / "metrics.jsonl"):
            self.add(line)

    def add(self, report: Mapping[str, Any]) -> None:
        """Add a line of metrics.jsonl, after `write_all`."""
        assert self._writer is not None
        for name, value in report.items():
            if name != "step" and isinstance(value, int | float) and math.isfinite(value):
                self._writer.add_scalar(name, value, report["step"])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
