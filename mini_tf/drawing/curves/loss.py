"""Loss curves of one run (loss.png) and of several runs."""

from collections.abc import Mapping, Sequence

from mini_tf.drawing.canvas import distinct_colors, figure_bytes, name_lines, write_title
from mini_tf.drawing.plotting import Figure, Line2D

Points = Sequence[tuple[float, float]]
_TRAIN, _VAL = "#7a9cc6", "#c2410c"


def loss_curve(train: Points, val: Points, title: str, unit: str) -> bytes:
    """A PNG of loss against step: training loss, its running mean, and validation loss with its minimum."""
    return figure_bytes(lambda: _draw(train, val, title, unit), "png")


def _draw(train: Points, val: Points, title: str, unit: str) -> Figure:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    if train:
        steps, losses = zip(*train, strict=True)
        axes.plot(steps, losses, color=_TRAIN, linewidth=0.8, alpha=0.5)
        axes.plot(steps, running_mean(losses, max(1, len(losses) // 30)), color=_TRAIN, linewidth=1.8, label="training")
    if val:
        steps, losses = zip(*val, strict=True)
        axes.plot(steps, losses, color=_VAL, marker="o", markersize=3.5, linewidth=1.5, label="validation")
        best_loss, best_step = min((loss, step) for step, loss in val)
        axes.annotate(
            f"{best_loss:.3f}",
            (best_step, best_loss),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            color=_VAL,
            fontsize=9,
        )
    write_title(figure, title)
    axes.set_xlabel("step", fontsize=10)
    axes.set_ylabel(f"loss ({unit})" if unit else "loss", fontsize=10)
    axes.tick_params(labelsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if train or val:
        axes.legend(frameon=False, fontsize=10)
    return figure


def loss_curves(runs: Mapping[str, tuple[Points, Points]], unit: str, suffix: str, x_label: str = "step") -> bytes:
    """A picture of the (training, validation) losses of several runs: validation solid, training dashed."""
    return figure_bytes(lambda: _draw_runs(runs, unit, x_label), suffix)


def _draw_runs(runs: Mapping[str, tuple[Points, Points]], unit: str, x_label: str) -> Figure:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes, lines = figure.subplots(), dict[str, Line2D]()
    for (name, (train, val)), color in zip(runs.items(), distinct_colors(len(runs)), strict=True):
        if train:
            steps, losses = zip(*train, strict=True)
            axes.plot(
                steps, running_mean(losses, max(1, len(losses) // 30)), color=color, linewidth=0.9, linestyle="--"
            )
        if val:
            axes.plot(*zip(*val, strict=True), color=color, marker="o", markersize=3.5, linewidth=1.6)
        [lines[name]] = axes.plot([], [], color=color, linewidth=1.6)
    write_title(figure, "loss: validation with dots, training dashed")
    axes.set_xlabel(x_label, fontsize=10)
    axes.set_ylabel(f"loss ({unit})" if unit else "loss", fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    name_lines(axes, lines)
    return figure


def running_mean(values: Sequence[float], width: int) -> list[float]:
    """The mean of each value and up to `width` - 1 before it."""
    return [sum(values[max(0, i + 1 - width) : i + 1]) / min(width, i + 1) for i in range(len(values))]
