"""metrics.jsonl: one line a report and no wall-clock in it, so that two runs compare with `cmp`; timing.jsonl has the seconds.

A checkpoint holds the size the files had when it was saved; continuing from it cuts them there, so a line torn by a
crash, or written after the checkpoint, is written again as if nothing had happened.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class Lines:
    """A file of JSON lines that is appended to; each line reaches the system at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, report: Mapping[str, Any]) -> None:
        with open(self.path, "ab") as file:
            file.write(to_line(report).encode() + b"\n")

    def sync(self) -> int:
        """Bytes written so far, now safe on the disk."""
        with open(self.path, "ab") as file:
            os.fsync(file.fileno())
            return file.tell()

    def cut(self, size: int) -> bool:
        """Cut the file to a size; False if it was already shorter, so that lines are lost."""
        with open(self.path, "ab") as file:
            before = file.tell()
            file.truncate(min(size, before))
        return before >= size


def to_line(report: Mapping[str, Any]) -> str:
    """JSON with full precision; a number that is not finite is null, and `not_finite` says what it was."""
    odd = {key: str(value) for key, value in report.items() if isinstance(value, float) and not math.isfinite(value)}
    fields = {key: None if key in odd else value for key, value in report.items()}
    return json.dumps(fields | ({"not_finite": odd} if odd else {}), ensure_ascii=False, allow_nan=False)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The reports of a file that may not exist yet, or end in a torn line (it is left out)."""
    if not path.exists():
        return
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                report = json.loads(line)
            except ValueError:
                continue
            if isinstance(report, dict):
                yield report


def curve(path: Path, key: str) -> list[tuple[int, float]]:
    """(step, value) of every report that has the key as a finite number."""
    return [(int(r["step"]), float(r[key])) for r in read_lines(path) if isinstance(r.get(key), (int, float)) and "step" in r]
