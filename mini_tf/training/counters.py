"""Counters of a run between evaluations, across interruptions; saved in every checkpoint."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JUMP, FEWEST, NATS = 1.5, 10, 0.5
"""A loss jumps if it is so many times the mean of at least so many steps, and so many nats above it."""


def number(saved: Mapping[str, Any], name: str) -> Any:
    """A number of a checkpoint; TypeError for text, since only floats are stored as (hexadecimal) text."""
    if isinstance(saved[name], str):
        raise TypeError(f"{name} is not a number")
    return saved[name]


@dataclass
class Counters:
    """The numbers that later steps depend on.

    best, worse: lowest validation loss, and evaluations since then. loss, steps: sum and number of training losses
    since the last evaluation, without skipped steps. train_loss: their mean at the last evaluation, NaN without steps.
    wall_seconds: of all processes that worked on this run.
    """

    best: float = math.inf
    worse: int = 0
    loss: float = 0.0
    steps: int = 0
    train_loss: float = math.nan
    val_loss: float = math.nan
    wall_seconds: float = 0.0
    _began: float = field(default_factory=time.monotonic)
    _jumped: bool = False

    def save(self) -> dict[str, Any]:
        """As JSON, bit-exact."""
        floats = {name: getattr(self, name).hex() for name in ("best", "loss", "train_loss", "val_loss")}
        return {**floats, "worse": self.worse, "steps": self.steps, "wall_seconds": self.wall()}

    def load(self, saved: dict[str, Any]) -> None:
        for name in ("best", "loss", "train_loss", "val_loss"):
            setattr(self, name, float.fromhex(saved[name]))
        self.worse, self.steps, self.wall_seconds = (number(saved, name) for name in ("worse", "steps", "wall_seconds"))

    def wall(self) -> float:
        return self.wall_seconds + time.monotonic() - self._began

    @property
    def mean(self) -> float:
        """Mean training loss since the last evaluation."""
        return self.loss / self.steps if self.steps else math.nan

    def jumps(self, loss: float) -> bool:
        """Whether a loss is far above those since the last evaluation; True once only."""
        if self._jumped or self.steps < FEWEST or loss <= max(JUMP * self.mean, self.mean + NATS):
            return False
        self._jumped = True
        return True

    def learnt(self, loss: float) -> None:
        self.loss, self.steps = self.loss + loss, self.steps + 1

    def evaluated(self, loss: float) -> None:
        self.train_loss, self.val_loss, self.loss, self.steps = self.mean, loss, 0.0, 0
        self._jumped = False
        self.worse = 0 if loss < self.best else self.worse + 1
        self.best = min(self.best, loss)
