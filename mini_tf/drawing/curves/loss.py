"""Loss curves of several runs."""

from collections.abc import Mapping

from mini_tf.drawing.canvas import distinct_colors, figure_bytes, name_lines, write_title
from mini_tf.drawing.curves.run_losses import Points, running_mean
from mini_tf.drawing.plotting import Figure, Line2D


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
