"""What a person reads of a step: its loss, its pace, the newest held-out figures and the time left; and both losses as curves."""

from collections.abc import Iterator, Mapping, Sequence

from mini_tf.drawing.terminal import sparkline
from mini_tf.training.loop import Progress, Report
from mini_tf.training.schedule import Horizon

LOSSES = {"training loss": "loss", "validation loss": "val.loss"}
"""Names of curves, and the keys of metrics.jsonl that they are of."""
_ON_BAR = {"val.loss": "val {:.3f}", "val.bits_per_byte": "{:.3f} bits/byte"}


class StepLines:
    """start: where this process began; horizon: where training ends."""

    def __init__(self, start: Progress, horizon: Horizon) -> None:
        self.start, self.horizon = start, horizon
        self._newest: Mapping[str, float] = {}

    def pace(self, report: Report) -> str:
        """The loss of the step's batch, the learning rate, and tokens a second since this process began."""
        return f"loss {report.loss:.4f}, lr {report.lr:.2g}, {self._tokens_a_second(report):,.0f} tokens/s"

    def on_bar(self, report: Report, evaluated: Mapping[str, float]) -> str:
        """The same and the newest held-out figures, in few characters."""
        self._newest = evaluated or self._newest
        held_out = [told.format(self._newest[name]) for name, told in _ON_BAR.items() if name in self._newest]
        pace = f"{self._tokens_a_second(report) / 1000:.3g}k tokens/s"
        return ", ".join([f"loss {report.loss:.3f}", *held_out, f"lr {report.lr:.2g}", pace])

    def _tokens_a_second(self, report: Report) -> float:
        return (report.tokens - self.start.tokens) / max(report.seconds - self.start.seconds, 1e-9)

    def left(self, report: Report) -> str:
        """The time left, from the tenth step on."""
        done = report.step - self.start.step
        if self.horizon.steps is None:
            left = (self.horizon.seconds or 0.0) - report.seconds
        else:
            left = (report.seconds - self.start.seconds) / done * (self.horizon.steps - report.step)
        return f", {_duration(left)} left" if done >= 10 and left >= 1 else ""


def curves(points: Mapping[str, Sequence[tuple[int, float]]]) -> Iterator[str]:
    """Each of the (step, loss) curves in a line, with its first and last loss."""
    for name, curve in points.items():
        losses = [loss for _, loss in curve]
        if len(losses) > 1:
            yield f"{name:<15} {losses[0]:.2f} {sparkline(losses)} {losses[-1]:.2f}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
