"""Common parts of figures: style, sizes in inches, and deterministic file contents.

Files have no dates or versions, and matplotlibrc is ignored. Text in an SVG is text, so it can be searched and edited;
any sans-serif font works, because only characters of DejaVu Sans are drawn (`glyphs`).
"""

import io
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mini_tf.drawing.colormap import text_color_on
from mini_tf.drawing.glyphs import FONT, figure_caption
from mini_tf.drawing.panel import Scale
from mini_tf.drawing.plotting import Axes, Figure, FontProperties, Normalize, ScalarMappable, TextToPath, matplotlib

TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 10.0, 8.0, 7.0
"""Font sizes in points: titles, tokens and labels, numbers."""
LINE_HEIGHT = 0.15
"""Line height in inches."""
MARGIN = 0.15
"""Left margin of text in inches."""
MAX_SIZE = 28.0
"""Maximum width and height of the maps of a figure in inches; with titles and labels the figure stays under 30."""
_DPI, _MAX_PIXELS = 150, 3600
"""Resolution of a PNG, and its maximum width and height in pixels: larger figures have down to 120 dpi."""
_STYLE: Any = {
    "font.family": FONT,
    "font.size": TEXT_SIZE,
    "text.parse_math": False,  # a "$" in a token is a "$"
    "svg.hashsalt": "minitf",
    "svg.fonttype": "none",
    "axes.titlesize": TEXT_SIZE,
    "axes.labelsize": TEXT_SIZE,
    "xtick.labelsize": TEXT_SIZE,
    "ytick.labelsize": TEXT_SIZE,
    "legend.fontsize": TEXT_SIZE,
}


def figure_bytes(draw: Callable[[], Figure], suffix: str) -> bytes:
    """The figure as a file, `suffix` "png" or "svg", in a fixed style."""
    no_metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    if suffix not in no_metadata:
        raise ValueError(f"suffix: {suffix!r} must be png or svg")
    file = io.BytesIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure = draw()
        figure.savefig(
            file,
            format=suffix,
            dpi=min(_DPI, _MAX_PIXELS / max(figure.get_size_inches())),
            metadata=no_metadata[suffix],
        )
    return file.getvalue()


def titled_figure(
    width: float, height: float, title: str, notes: Sequence[str] = (), first_note: float = 0.36
) -> Figure:
    """An empty figure of this size in inches with a title, truncated to its width, and notes below `first_note`."""
    figure = Figure(figsize=(width, height))
    _write(figure, 0.12, truncate_to(title, width - 2 * MARGIN, TITLE_SIZE), TITLE_SIZE, "black")
    for number, note in enumerate(notes):
        _write(figure, first_note + LINE_HEIGHT * number, note, TEXT_SIZE, "#555555")
    return figure


def _write(figure: Figure, top: float, text: str, size: float, color: str) -> None:
    across, down = figure.get_size_inches()
    figure.text(MARGIN / across, 1 - top / down, text, fontsize=size, color=color, va="top")


def add_axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes with this position, from the left and top, and size in inches."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def text_width(text: str, size: float = TEXT_SIZE) -> float:
    """Width in inches."""
    width, _, _ = TextToPath().get_text_width_height_descent(text, FontProperties(family=FONT, size=size), ismath=False)
    return float(width) / 72


def short_caption(text: str) -> str:
    """A caption of at most 120 characters, to limit the size of figures."""
    return figure_caption(text, 120)


def truncate_to(text: str, inches: float, size: float = TEXT_SIZE) -> str:
    """A short caption, truncated with … to a width."""
    whole = short_caption(text)
    if text_width(whole, size) <= inches:
        return whole
    length = bisect_right(range(len(whole)), inches, key=lambda n: text_width(whole[:n] + "…", size)) - 1
    return whole[: max(length, 0)] + "…"


def wrap_caption(text: str, inches: float, most: int, size: float = TEXT_SIZE) -> list[str]:
    """A caption wrapped to a width, in at most `most` lines; the last ends with … if it is truncated.

    Words longer than a line are broken.
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
            length = max(1, bisect_right(range(len(word)), inches, key=lambda n: text_width(word[:n], size)) - 1)
            lines, rest = [*lines[:-1], word[:length], ""], word[length:] + blank + rest
        if len(lines) > most:
            last = lines[most - 1]
            while text_width(last + "…", size) > inches:
                last = last[:-1]
            return [*lines[: most - 1], last + "…"]
    return lines


def draw_heat_map(axes: Axes, values: np.ndarray, scale: Scale, words: Mapping[tuple[int, int], str]) -> None:
    """Draw a heat map, with NaN hatched in gray; words: text of some cells (row, column)."""
    axes.patch.set(facecolor="#f2f2f2", edgecolor="#d8d8d8", hatch="////", linewidth=0)
    colors: Any = _colors_of(scale)
    # "none" keeps one pixel per value in an SVG; "auto" fills the axes, which have the right aspect ratio.
    axes.imshow(np.ma.masked_invalid(values), cmap=colors.cmap, norm=colors.norm, interpolation="none", aspect="auto")
    axes.tick_params(length=0, pad=2)
    for (row, column), word in words.items():
        red, green, blue, _ = map(int, colors.to_rgba(np.asarray(values[row, column]), bytes=True))
        ink = [part / 255 for part in text_color_on((red, green, blue))]
        axes.text(column, row, word, fontsize=SMALL_SIZE, ha="center", va="center", color=ink)


def _colors_of(scale: Scale) -> ScalarMappable:
    return ScalarMappable(Normalize(*scale.ends), matplotlib.colormaps["RdBu_r" if scale.diverging else "Blues"])


def distinct_colors(count: int) -> list[tuple[float, ...]]:
    """`count` distinct colors, repeated after twenty."""
    colors = matplotlib.colormaps["tab10" if count <= 10 else "tab20"]
    return [colors(number % colors.N) for number in range(count)]


def add_colorbar(figure: Figure, scale: Scale, left: float, top: float, height: float) -> None:
    """Add the colorbar."""
    extend = "max" if scale.open_end else "neither"
    bar = figure.colorbar(_colors_of(scale), cax=add_axes(figure, left, top, 0.13, height), extend=extend)
    bar.outline.set_linewidth(0.5)
    bar.set_label(figure_caption(scale.label, 40))
