"""Progress lines: loss, validation metrics, learning rate, throughput and ETA of a step; loss curves at the end."""

from collections.abc import Iterator, Mapping, Sequence

from mini_tf.drawing.terminal import sparkline
from mini_tf.training.loop import Progress, Report
from mini_tf.training.schedule import Horizon

LOSSES = {"training loss": "loss", "validation loss": "val.loss"}
"""Curve name -> key in metrics.jsonl."""
_POSTFIX = {"val.loss": "val {:.3f}", "val.bits_per_byte": "{:.3f} bpb"}


class StepLines:
    """start: progress at the start of this process; horizon: the end of training."""

    def __init__(self, start: Progress, horizon: Horizon) -> None:
        self.start, self.horizon = start, horizon
        self._newest: Mapping[str, float] = {}

    def line(self, report: Report, metrics: str) -> str:
        """`step 26/250 | loss 4.9427 | val.loss 4.8567 | lr 0.04 | 21.3k tok/s | ETA 1:02`.

        loss: of the batch; tok/s: mean since this process started. metrics: of an evaluation, comma-separated, or "".
        """
        steps = "" if self.horizon.steps is None else f"/{self.horizon.steps}"
        parts = [
            f"step {report.step}{steps}",
            f"loss {report.loss:.4f}",
            *metrics.split(", "),
            *self._speed(report),
            self._eta(report),
        ]
        return " | ".join(filter(None, parts))

    def bar_postfix(self, report: Report, evaluated: Mapping[str, float]) -> str:
        """The step's loss, learning rate and throughput, and the newest validation metrics, for the progress bar."""
        self._newest = evaluated or self._newest
        metrics = [text.format(self._newest[name]) for name, text in _POSTFIX.items() if name in self._newest]
        return " | ".join([f"loss {report.loss:.3f}", *metrics, *self._speed(report)])

    def _speed(self, report: Report) -> list[str]:
        tokens_per_second = (report.tokens - self.start.tokens) / max(report.seconds - self.start.seconds, 1e-9)
        speed = f"{tokens_per_second / 1000:.3g}k" if tokens_per_second >= 1000 else f"{tokens_per_second:.0f}"
        return [f"lr {report.lr:.2g}", f"{speed} tok/s"]

    def _eta(self, report: Report) -> str:
        """The remaining time, from the tenth step on."""
        done = report.step - self.start.step
        if self.horizon.steps is None:
            left = (self.horizon.seconds or 0.0) - report.seconds
        else:
            left = (report.seconds - self.start.seconds) / done * (self.horizon.steps - report.step)
        return f"ETA {_clock(left)}" if done >= 10 and left >= 1 else ""


def curves(points: Mapping[str, Sequence[tuple[int, float]]]) -> Iterator[str]:
    """One line per curve of (step, loss): its first loss, a sparkline, its last loss."""
    for name, curve in points.items():
        losses = [loss for _, loss in curve]
        if len(losses) > 1:
            yield f"{name:<15} {losses[0]:.2f} {sparkline(losses)} {losses[-1]:.2f}"


def _clock(seconds: float) -> str:
    """62.4 -> "1:02", 7384 -> "2:03:04"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
