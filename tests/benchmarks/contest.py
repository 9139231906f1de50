"""A comparison: sides that do the same work, each one a command that prints what it measured as one line of JSON."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RUN = "{run}"
"""Stands in a command for the number of the run, from 0."""


@dataclass(frozen=True)
class Side:
    """`command` prints {"value": ..., further figures}; missing: why it cannot be run here, else empty.

    own: minitf's side. equal: does the same work as the others; False where its mathematics or its work is another.
    """

    name: str
    command: Sequence[str]
    missing: str = ""
    own: bool = False
    equal: bool = True


@dataclass(frozen=True)
class Contest:
    """Ratios tell of the first own side that counts. more: more is better.

    figure: the one that is compared; tell: others worth telling. reach: the loss that a side must come to, or it does
    not count.
    """

    name: str
    unit: str
    sides: Sequence[Side]
    more: bool = True
    figure: str = "value"
    tell: Sequence[str] = ()
    reach: float | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line. nanogpt, text: absolute paths; text None = the built-in corpus.

    small: neither peers nor what takes more than a minute. full: what takes an hour, too.
    """

    small: bool = False
    full: bool = False
    runs: int = 3
    threads: int = 1
    nanogpt: Path | None = None
    text: Path | None = None
    reach: float = 1.88
    steps: Mapping[str, int] = field(default_factory=dict)


def module(name: str, *arguments: object) -> list[str]:
    """The command of a side that a file of this folder measures."""
    return [sys.executable, "-m", f"tests.benchmarks.{name}", *(str(a) for a in arguments if a is not None)]


def answer(measure: Callable[..., Mapping[str, Any]], arguments: Sequence[str]) -> None:
    """What such a command does: measure, and print the figures as its last line."""
    print(json.dumps(dict(measure(*arguments))), flush=True)


DEVICE = "MINITF_BENCHMARK_DEVICE"
"""The environment variable that says where every side computes."""


def device() -> str:
    """Where every side computes: "cpu", or "cuda"."""
    return os.environ.get(DEVICE, "cpu")


def threads() -> int:
    """CPU threads that every side is given."""
    return int(os.environ.get("OMP_NUM_THREADS", "1"))
