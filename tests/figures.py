"""What a figure shows, read off matplotlib's artists: numbers, marks, labels, the limits of the colors, and where the
axes stand.
"""

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from commands import minitf
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn


class Map(NamedTuple):
    """A heat map. rows, columns: labels by index, from the top and the left; values: as drawn, NaN = blank.

    marks: marked cells (row, column) by sign; colors: name of the colormap, and its limits; place: left, top, width and
    height of the axes in inches.
    """

    title: str
    rows: dict[int, str]
    columns: dict[int, str]
    values: np.ndarray
    marks: dict[str, set[tuple[int, int]]]
    colors: tuple[str, float, float]
    place: tuple[float, float, float, float]

    @property
    def named(self) -> dict[str, set[tuple[str, str]]]:
        """The marks by the labels of their rows and columns."""
        return {
            sign: {(self.rows[row], self.columns[column]) for row, column in cells}
            for sign, cells in self.marks.items()
        }


def drawn(draw: Callable[[], object]) -> Figure:
    """The figure that is saved by a drawing function."""
    figures: list[Figure] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
        draw()
    [figure] = figures
    return figure


def pictured(*arguments: str | Path) -> tuple[dict[str, Any], Figure]:
    """The numbers of a command that writes a picture, and the picture."""
    with tempfile.TemporaryDirectory() as folder:
        picture, numbers = Path(folder) / "picture.svg", Path(folder) / "numbers.json"
        done: list[Any] = []
        figure = drawn(lambda: done.append(minitf(*arguments, "-o", picture, "-o", numbers)))
        assert done[0].exit_code == 0, done[0].stderr
        return json.loads(numbers.read_text()), figure


def table_in(text: str, header: str) -> list[list[str]]:
    """The rows below the line of a printed text that begins with a header, without blank cells."""
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.strip().startswith(header))
    return [re.split(r"  +", line.strip()) for line in lines[first + 1 :]]


def has_hooks(model: nn.Module) -> bool:
    """Whether anything listens to a forward pass of a model: a view must leave it as it was."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def rows_of(picture: Any) -> list[list[str]]:
    """The cells of a table in a terminal, without blank ones; the first row are the headers."""
    return [re.split(r"  +", line.strip()) for line in picture(colored=False, width=200).plain.splitlines()]


def maps(figure: Figure) -> list[Map]:
    """The heat maps of a figure, in the order of drawing."""
    return [_map(axes) for axes in figure.axes if axes.images and np.ndim(axes.images[0].get_array()) == 2]


def colorbar(figure: Figure) -> tuple[str, tuple[float, float]]:
    """Label and limits of the one color bar, which is drawn last."""
    axes = figure.axes[-1]
    assert not axes.images
    return " ".join(axes.get_ylabel().split()), axes.get_ylim()


def texts(figure: Figure) -> list[str]:
    """The title and the notes above the axes."""
    return [text.get_text() for text in figure.texts]


def _marked(axes: Axes) -> dict[str, set[tuple[int, int]]]:
    """A sign is drawn twice, first wide and white."""
    found: dict[str, list[list[tuple[int, int]]]] = {}
    for part in axes.collections:
        corners, [(_, dashes)] = len(part.get_paths()[0].vertices), part.get_linestyle()
        sign = "square" if corners <= 6 else "ring" if dashes is None else "dotted ring"
        cells = [(round(y), round(x)) for x, y in np.asarray(part.get_offsets()).tolist()]
        assert np.asarray(part.get_offsets()).tolist() == [[column, row] for row, column in cells], (
            "marks stand in the middle of cells"
        )
        found.setdefault(sign, []).append(cells)
    assert all(white == red for white, red in found.values())
    return {sign: {*cells} for sign, (cells, _) in found.items() if cells}


def _map(axes: Axes) -> Map:
    [image] = axes.images
    array: Any = image.get_array()
    n_rows, n_columns = array.shape[:2]
    assert (*axes.get_xlim(), *axes.get_ylim()) == (-0.5, n_columns - 0.5, n_rows - 0.5, -0.5), (
        "cells are counted from the top left"
    )
    assert [*image.get_extent()] == [-0.5, n_columns - 0.5, n_rows - 0.5, -0.5]
    width, height = axes.figure.get_size_inches()
    box = axes.get_position()
    place = tuple(
        round(float(inches), 6)
        for inches in (box.x0 * width, (1 - box.y1) * height, box.width * width, box.height * height)
    )
    return Map(
        axes.get_title(loc="left"),
        {int(tick): label.get_text() for tick, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)},
        {int(tick): label.get_text() for tick, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)},
        np.ma.filled(np.ma.asarray(array, dtype=float), np.nan),
        _marked(axes),
        (image.cmap.name, float(image.norm.vmin), float(image.norm.vmax)),
        place,  # type: ignore[arg-type]
    )
