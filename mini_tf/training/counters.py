"""Counters of a run between evaluations, saved in every checkpoint."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SPIKE_RATIO, SPIKE_MARGIN, MIN_STEPS = 1.5, 0.5, 10
"""A loss spike is SPIKE_RATIO times the mean loss of at least MIN_STEPS steps, and SPIKE_MARGIN nats above it."""


def number(saved: Mapping[str, Any], name: str) -> Any:
    """A number of a checkpoint. Raises TypeError for a string, the type of floats in hex."""
    if isinstance(saved[name], str):
        raise TypeError(f"{name} is not a number")
    return saved[name]


@dataclass
class Counters:
    """Losses and times of the run so far.

    best: lowest score of an evaluation (`BestMetric`). patience_counter: evaluations since it. met: whether the last
    evaluation met `eval.until`. loss, steps: sum of the training losses since the last evaluation and their number,
    skipped steps excluded. train_loss: their mean at the last evaluation, NaN without a step. wall_seconds: total over
    all processes of this run.
    """

    best: float = math.inf
    patience_counter: int = 0
    met: bool = False
    loss: float = 0.0
    steps: int = 0
    train_loss: float = math.nan
    val_loss: float = math.nan
    wall_seconds: float = 0.0
    _started: float = field(default_factory=time.monotonic)
    _spike_seen: bool = False

    def save(self) -> dict[str, Any]:
        """As JSON; floats in hex, so exact."""
        floats = {name: getattr(self, name).hex() for name in ("best", "loss", "train_loss", "val_loss")}
        numbers = {"worse": self.patience_counter, "steps": self.steps}
        return {**floats, **numbers, "met": self.met, "wall_seconds": self.wall()}

    def load(self, saved: dict[str, Any]) -> None:
        for name in ("best", "loss", "train_loss", "val_loss"):
            setattr(self, name, float.fromhex(saved[name]))
        self.met = saved.get("met") is True
        numbers = (number(saved, name) for name in ("worse", "steps", "wall_seconds"))
        self.patience_counter, self.steps, self.wall_seconds = numbers

    def wall(self) -> float:
        return self.wall_seconds + time.monotonic() - self._started

    @property
    def mean_loss(self) -> float:
        """Mean training loss since the last evaluation."""
        return self.loss / self.steps if self.steps else math.nan

    def is_spike(self, loss: float) -> bool:
        """Whether `loss` is far above the mean since the last evaluation; True only once per evaluation."""
        bound = max(SPIKE_RATIO * self.mean_loss, self.mean_loss + SPIKE_MARGIN)
        is_first = not self._spike_seen and self.steps >= MIN_STEPS and loss > bound
        self._spike_seen |= is_first
        return is_first

    def add_step(self, loss: float) -> None:
        self.loss, self.steps = self.loss + loss, self.steps + 1

    def add_evaluation(self, loss: float, score: float) -> None:
        """loss: of the validation data. score: by which evaluations are ranked, lower is better; may be NaN."""
        self.train_loss, self.val_loss, self.loss, self.steps = self.mean_loss, loss, 0.0, 0
        self._spike_seen = False
        self.patience_counter = 0 if score < self.best else self.patience_counter + 1
        self.best = min(self.best, score)
