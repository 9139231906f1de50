"""metrics.jsonl: one JSON line per report, without times, so equal runs have equal files; timing.jsonl: seconds.

A checkpoint stores the sizes of both files. Continuing from it truncates them to these sizes, which removes later or
partial lines. TensorBoard's event files (`--tensorboard`; tensorboardX needs only protobuf) are rebuilt from
metrics.jsonl when a run continues.
"""

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mini_tf.run.disk import Disk
from mini_tf.system.errors import RunFault, Unavailable
from mini_tf.system.limits import limits
from mini_tf.system.safe_files import open_plain


class JsonLinesFile:
    """An append-only file of JSON lines, not buffered."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path, self.disk = path, disk

    def append(self, report: Mapping[str, Any]) -> None:
        self.disk.append(self.path, to_line(report).encode() + b"\n")

    def sync(self) -> int:
        """fsync the file and return its size in bytes."""
        self._create()
        self.disk.sync(self.path)
        return self.path.stat().st_size

    def truncate(self, size: int) -> bool:
        """Truncate the file to `size` bytes; False if it was already shorter, so that lines are missing."""
        self._create()
        before = self.path.stat().st_size
        if before > size:
            self.disk.truncate(self.path, size)
        return before >= size

    def _create(self) -> None:
        if not self.path.exists():
            self.disk.append(self.path, b"")


def to_line(report: Mapping[str, Any]) -> str:
    """JSON with full precision; NaN and infinities become null and are listed under `not_finite`."""
    not_finite = {
        key: str(value) for key, value in report.items() if isinstance(value, float) and not math.isfinite(value)
    }
    fields = {key: None if key in not_finite else value for key, value in report.items()}
    return json.dumps(fields | ({"not_finite": not_finite} if not_finite else {}), ensure_ascii=False, allow_nan=False)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The reports of a file, which may be missing; without partial or damaged lines. RunFault if it cannot be read."""
    return (report for _, report in _lines(path) if report is not None)


def count_damaged(path: Path) -> int:
    """The number of lines that are no reports, besides a partial last line."""
    return sum(report is None and line.endswith(b"\n") for line, report in _lines(path))


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    if not path.exists():
        return
    try:
        with open_plain(path) as file:
            while line := file.readline(limits().line_bytes):
                report = None
                with suppress(ValueError, RecursionError):
                    report = json.loads(line)
                yield line, report if isinstance(report, dict) else None
    except OSError as error:
        raise RunFault.located(str(path), f"cannot be read: {error.strerror}") from error


def curve(path: Path, key: str) -> list[tuple[int, float]]:
    """(step, value) of every report in which both are finite numbers."""
    reports = ((r.get("step"), r.get(key)) for r in read_lines(path))
    return [
        (step, float(value))
        for step, value in reports
        if isinstance(step, int) and isinstance(value, (int, float)) and abs(value) < 1e300
    ]


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
