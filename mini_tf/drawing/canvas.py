"""Where figures are drawn: one style, sizes in inches, and the bytes of the file. The same numbers give the same bytes.

No clock, no version, no screen and no matplotlibrc is involved. Text in an SVG stays text: it can be searched, copied, read aloud and
edited for a paper, and any viewer's sans-serif will do, because only characters that DejaVu Sans has are drawn (`glyphs`).
"""

import io
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mini_tf.drawing.glyphs import FONT, figure_caption
from mini_tf.drawing.panel import Scale
from mini_tf.drawing.plotting import Axes, Figure, FontProperties, Normalize, ScalarMappable, TextToPath, matplotlib
from mini_tf.drawing.ramp import ink_on

TITLE, WORD, SMALL = 10.0, 8.0, 7.0
"""Points of a title, of a token or a heading, of a number."""
LINE = 0.15
"""Inches from one line of words to the next."""
EDGE = 0.15
"""Inches from the figure's left edge to what is written."""
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


def to_bytes(draw: Callable[[], Figure], suffix: str) -> bytes:
    """What is drawn, as a file: `suffix` "png" or "svg"; in one style, whatever the user's matplotlibrc says."""
    nameless = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    if suffix not in nameless:
        raise ValueError(f"suffix: {suffix!r} must be png or svg")
    file = io.BytesIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure = draw()
        figure.savefig(file, format=suffix, dpi=min(_DOTS, _MOST_DOTS / max(figure.get_size_inches())), metadata=nameless[suffix])
    return file.getvalue()


def titled(width: float, height: float, title: str, notes: Sequence[str] = (), first_note: float = 0.36) -> Figure:
    """A figure of so many inches that is empty but for its title, cut to its width, and, from `first_note` inches on, a line a note."""
    figure = Figure(figsize=(width, height))
    _write(figure, 0.12, cut_to(title, width - 2 * EDGE, TITLE), TITLE, "black")
    for number, note in enumerate(notes):
        _write(figure, first_note + LINE * number, note, WORD, "#555555")
    return figure


def _write(figure: Figure, top: float, text: str, size: float, color: str) -> None:
    across, down = figure.get_size_inches()
    figure.text(EDGE / across, 1 - top / down, text, fontsize=size, color=color, va="top")


def place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes of so many inches, as far from the figure's left and upper edge."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


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


def wrapped(text: str, inches: float, most: int, size: float = WORD) -> list[str]:
    """A caption in at most `most` lines of this width, broken between words, and within those that are longer than a line.

    Where it is cut the last line ends in ….
    """
    lines, rest = [""], figure_caption(text[:4000] + "…" * (len(text) > 4000))
    while rest:
        word, blank, rest = rest.partition(" ")
        line = f"{lines[-1]} {word}" if lines[-1] else word
        if text_width(line, size) <= inches:
            lines[-1] = line
        elif lines[-1]:
            lines, rest = [*lines, ""], word + blank + rest
        else:
            kept = max(1, bisect_right(range(len(word)), inches, key=lambda n: text_width(word[:n], size)) - 1)
            lines, rest = [*lines[:-1], word[:kept], ""], word[kept:] + blank + rest
        if len(lines) > most:
            last = lines[most - 1]
            while text_width(last + "…", size) > inches:
                last = last[:-1]
            return [*lines[: most - 1], last + "…"]
    return lines


def paint(axes: Axes, values: np.ndarray, scale: Scale, words: Mapping[tuple[int, int], str]) -> None:
    """A map of numbers, NaN hatched in grey, and the words that stand on some of its cells (row, column)."""
    axes.patch.set(facecolor="#f2f2f2", edgecolor="#d8d8d8", hatch="////", linewidth=0)
    colors: Any = _colors_of(scale)
    # "none" keeps one pixel a value in an SVG; "auto" follows the axes, whose size already fits.
    axes.imshow(np.ma.masked_invalid(values), cmap=colors.cmap, norm=colors.norm, interpolation="none", aspect="auto")
    axes.tick_params(length=0, pad=2)
    for (row, column), word in words.items():
        red, green, blue, _ = map(int, colors.to_rgba(np.asarray(values[row, column]), bytes=True))
        ink = [part / 255 for part in ink_on((red, green, blue))]
        axes.text(column, row, word, fontsize=SMALL, ha="center", va="center", color=ink)


def _colors_of(scale: Scale) -> ScalarMappable:
    return ScalarMappable(Normalize(*scale.ends), matplotlib.colormaps["RdBu_r" if scale.diverging else "Blues"])


def line_colors(count: int) -> list[tuple[float, ...]]:
    """So many colours that can be told apart; they come again after twenty."""
    colors = matplotlib.colormaps["tab10" if count <= 10 else "tab20"]
    return [colors(number % colors.N) for number in range(count)]


def add_scale(figure: Figure, scale: Scale, left: float, top: float, height: float) -> None:
    """The bar that says what the colours mean."""
    extend = "max" if scale.open_end else "neither"
    bar = figure.colorbar(_colors_of(scale), cax=place(figure, left, top, 0.13, height), extend=extend)
    bar.outline.set_linewidth(0.5)
    bar.set_label(figure_caption(scale.label, 40))
