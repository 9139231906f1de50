"""Pictures in files. The same numbers give the same bytes: no clock, no version, no screen is involved."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_TRAIN, _VAL = "#7a9cc6", "#c2410c"


def loss_curve(path: Path, train: Sequence[tuple[int, float]], val: Sequence[tuple[int, float]], title: str) -> None:
    """A PNG of loss against step: the training loss as measured, its running mean, and the held-out loss with its lowest point."""
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = FigureCanvasAgg(figure).figure.subplots()
    if train:
        steps, losses = zip(*train, strict=True)
        axes.plot(steps, losses, color=_TRAIN, linewidth=0.8, alpha=0.5)
        axes.plot(steps, running_mean(losses, max(1, len(losses) // 30)), color=_TRAIN, linewidth=1.8, label="training")
    if val:
        steps, losses = zip(*val, strict=True)
        axes.plot(steps, losses, color=_VAL, marker="o", markersize=3.5, linewidth=1.5, label="validation")
        best_loss, best_step = min((loss, step) for step, loss in val)
        axes.annotate(
            f"{best_loss:.3f}", (best_step, best_loss), xytext=(0, 9), textcoords="offset points", ha="center", color=_VAL, fontsize=9
        )
    axes.set_title(title, parse_math=False, fontsize=11)  # a "$" in a name is a "$"
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats a target)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if train or val:
        axes.legend(frameon=False)
    figure.savefig(path, metadata={"Software": None})


def running_mean(values: Sequence[float], width: int) -> list[float]:
    """The mean of each value and up to `width` - 1 before it."""
    return [sum(values[max(0, i + 1 - width) : i + 1]) / min(width, i + 1) for i in range(len(values))]
