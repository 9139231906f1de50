"""metrics.jsonl: one line a report and no wall-clock in it, so that two runs compare with `cmp`; timing.jsonl has the seconds.

A checkpoint holds the size the files had when it was saved; continuing from it cuts them there, so a line torn by a
crash, or written after the checkpoint, is written again as if nothing had happened.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mini_tf.run.disk import Disk
from mini_tf.system.errors import RunFault
from mini_tf.system.limits import limits
from mini_tf.system.plain_file import open_plain


class Lines:
    """A file of JSON lines that is appended to; each line reaches the system at once."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path, self.disk = path, disk

    def append(self, report: Mapping[str, Any]) -> None:
        self.disk.append(self.path, to_line(report).encode() + b"\n")

    def sync(self) -> int:
        """Bytes written so far, now safe on the disk."""
        self._begin()
        self.disk.sync(self.path)
        return self.path.stat().st_size

    def cut(self, size: int) -> bool:
        """Cut the file to a size; False if it was already shorter, so that lines are lost."""
        self._begin()
        before = self.path.stat().st_size
        if before > size:
            self.disk.truncate(self.path, size)
        return before >= size

    def _begin(self) -> None:
        if not self.path.exists():
            self.disk.append(self.path, b"")


def to_line(report: Mapping[str, Any]) -> str:
    """JSON with full precision; a number that is not finite is null, and `not_finite` says what it was."""
    odd = {key: str(value) for key, value in report.items() if isinstance(value, float) and not math.isfinite(value)}
    fields = {key: None if key in odd else value for key, value in report.items()}
    return json.dumps(fields | ({"not_finite": odd} if odd else {}), ensure_ascii=False, allow_nan=False)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The reports of a file that may not exist yet, or end in a torn line (it is left out). RunFault where it cannot be read."""
    if not path.exists():
        return
    try:
        with open_plain(path) as file:
            while line := file.readline(limits().line_bytes):
                with suppress(ValueError, RecursionError):
                    if isinstance(report := json.loads(line), dict):
                        yield report
    except OSError as error:
        raise RunFault(f"{path}: cannot be read: {error.strerror}", where=[str(path)]) from error


def curve(path: Path, key: str) -> list[tuple[int, float]]:
    """(step, value) of every report that has both as finite numbers."""
    reports = ((r.get("step"), r.get(key)) for r in read_lines(path))
    return [
        (step, float(value)) for step, value in reports if isinstance(step, int) and isinstance(value, (int, float)) and abs(value) < 1e300
    ]
