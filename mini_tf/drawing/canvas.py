"""Where figures are drawn: one style, sizes in inches, and the bytes of the file. The same numbers give the same bytes.

No clock, no version, no screen and no matplotlibrc is involved. Text in an SVG stays text: it can be searched, copied, read aloud and
edited for a paper, and any viewer's sans-serif will do, because only characters that DejaVu Sans has are drawn (`glyphs`).
"""

import io
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mini_tf.drawing.glyphs import FONT, figure_caption
from mini_tf.drawing.panel import Scale
from mini_tf.drawing.plotting import Axes, Colormap, Figure, FontProperties, Normalize, PowerNorm, ScalarMappable, TextToPath, matplotlib
from mini_tf.drawing.ramp import figure_colors, ink_on

TITLE, WORD, SMALL = 10.0, 8.0, 7.0
"""Points of a title, of a token or a heading, of a number."""
LINE = 0.15
"""Inches from one line of words to the next."""
LONGEST = 28.0
"""Inches that the maps of a figure may take to either side; with titles and labels it stays under 30."""
_DOTS, _MOST_DOTS = 150, 3600
"""Dots an inch of a PNG, and along a whole side of it: larger figures are coarser, down to 120 an inch."""
_STYLE: Any = {
    "font.family": FONT,
    "font.size": WORD,
    "text.parse_math": False,  # a "$" in a token is a "$"
    "svg.hashsalt": "minitf",
    "svg.fonttype": "none",
    "axes.titlesize": WORD,
    "axes.labelsize": WORD,
    "xtick.labelsize": WORD,
    "ytick.labelsize": WORD,
    "legend.fontsize": WORD,
}


@contextmanager
def house_style() -> Iterator[None]:
    """The same look everywhere, whatever the user's matplotlibrc says; drawing and writing both happen inside."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def to_bytes(figure: Figure, suffix: str) -> bytes:
    """The figure as a file: `suffix` "png" or "svg"."""
    nameless = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    if suffix not in nameless:
        raise ValueError(f"suffix: {suffix!r} must be png or svg")
    file = io.BytesIO()
    figure.savefig(file, format=suffix, dpi=min(_DOTS, _MOST_DOTS / max(figure.get_size_inches())), metadata=nameless[suffix])
    return file.getvalue()


def blank(width: float, height: float) -> Figure:
    """An empty white figure of so many inches."""
    return Figure(figsize=(width, height))


def place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes of so many inches, as far from the figure's left and upper edge."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def write(figure: Figure, left: float, top: float, text: str, size: float = WORD, color: str = "black") -> None:
    """A line of text whose upper left corner stands so many inches from the figure's."""
    across, down = figure.get_size_inches()
    figure.text(left / across, 1 - top / down, text, fontsize=size, color=color, va="top")


def text_width(text: str, size: float = WORD) -> float:
    """Inches."""
    width, _, _ = TextToPath().get_text_width_height_descent(text, FontProperties(family=FONT, size=size), ismath=False)
    return float(width) / 72


def headline(text: str) -> str:
    """A caption of at most 120 characters, so that no text makes a figure grow without bounds."""
    return figure_caption(text, 120)


def cut_to(text: str, inches: float, size: float = WORD) -> str:
    """A headline, cut with … to the room there is."""
    whole = headline(text)
    if text_width(whole, size) <= inches:
        return whole
    kept = bisect_right(range(len(whole)), inches, key=lambda n: text_width(whole[:n] + "…", size)) - 1
    return whole[: max(kept, 0)] + "…"


def ink(value: float, colors: ScalarMappable) -> tuple[float, float, float]:
    """The colour of a letter on a number's colour."""
    red, green, blue, _ = colors.to_rgba(np.asarray(value), bytes=True)
    return (0.0, 0.0, 0.0) if ink_on((int(red), int(green), int(blue))) == (0, 0, 0) else (1.0, 1.0, 1.0)


def colors_of(scale: Scale) -> ScalarMappable:
    """Numbers to colours; NaN is grey."""
    colors: Colormap = matplotlib.colormaps[figure_colors(scale)].with_extremes(bad="#e4e4e4")
    return ScalarMappable(norm_of(scale), colors)


def norm_of(scale: Scale) -> Normalize:
    """How far a number is on its way from the first colour to the last."""
    return PowerNorm(0.5, *scale.ends) if scale.root else Normalize(*scale.ends)


def line_colors(count: int) -> list[tuple[float, ...]]:
    """So many colours that can be told apart; they come again after twenty."""
    colors = matplotlib.colormaps["tab10" if count <= 10 else "tab20"]
    return [colors(number % colors.N) for number in range(count)]


def add_scale(figure: Figure, scale: Scale, left: float, top: float, height: float) -> None:
    """The bar that says what the colours mean."""
    bar = figure.colorbar(colors_of(scale), cax=place(figure, left, top, 0.13, height))
    bar.outline.set_linewidth(0.5)
    bar.set_label(figure_caption(scale.label, 40))
