"""Common parts of figures: style, titles, sizes in inches, and deterministic file contents.

Files name minitf, which may then draw them again, and have no dates or versions; matplotlibrc is ignored. Text in an
SVG is text, and in a PDF TrueType, so that it can be searched and edited.
"""

import colorsys
import io
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mini_tf.drawing.look import look, luminance, text_color_on
from mini_tf.drawing.panel import Scale
from mini_tf.drawing.plotting import (
    FONT,
    Axes,
    Figure,
    FontProperties,
    Glyphs,
    Line2D,
    LinearSegmentedColormap,
    Normalize,
    ScalarMappable,
    Text,
    TextToPath,
    figure_caption,
    font_families,
    glyphs_of_figure,
    has_glyph,
    matplotlib,
)
from mini_tf.system.errors import ResultWarning

TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 10.0, 8.0, 7.0
"""Font sizes in points: titles, tokens and labels, numbers."""
LINE_HEIGHT = 0.15
"""Height of a line of TEXT_SIZE in inches."""
MARGIN = 0.15
"""Left and right margin of text in inches."""
MIN_WIDTH = 5.0
"""Minimum width of a figure with maps in inches."""
COLORBAR_WIDTH, COLORBAR_HEIGHT = 0.95, (1.3, 3.0)
"""Width of the colorbar with its labels and the space beside it, and its minimum and maximum height in inches."""
MAX_SIZE = 28.0
"""Maximum width and height of the maps of a figure in inches; with titles and labels the figure stays under 30."""
_DPI, _MAX_PIXELS = 150, 4200
"""Resolution of a PNG, and its maximum width and height in pixels: larger figures have down to 140 dpi."""
MOST_WITHIN = 5
"""Maximum number of lines that are named within the axes."""
_UNDRAWABLE = 0.25
"""A text with a larger share of characters that no font has is not shown below the title."""
_STYLE: Any = {
    "font.family": FONT,
    "font.size": TEXT_SIZE,
    "text.parse_math": False,  # a "$" in a token is a "$"
    "svg.hashsalt": "minitf",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "axes.titlesize": TEXT_SIZE,
    "axes.labelsize": TEXT_SIZE,
    "xtick.labelsize": TEXT_SIZE,
    "ytick.labelsize": TEXT_SIZE,
    "legend.fontsize": TEXT_SIZE,
}
_COLORED = {
    "paper": ("figure.facecolor", "axes.facecolor", "savefig.facecolor"),
    "ink": ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"),
    "rule": ("grid.color",),
}
"""Settings of matplotlib for each color."""
_METADATA: Mapping[str, Any] = {
    "png": {"Software": "minitf"},
    "svg": {"Date": None, "Creator": "minitf"},
    "pdf": {"CreationDate": None, "Creator": "minitf", "Producer": None},
}


def figure_bytes(draw: Callable[[], Figure], suffix: str) -> bytes:
    """The figure as a file, `suffix` "png", "svg" or "pdf", as `look` says. Warns of characters that no font has."""
    file = io.BytesIO()
    with matplotlib.rc_context(), glyphs_of_figure() as glyphs:
        matplotlib.rcdefaults()
        colors = look().colors._asdict()
        matplotlib.rcParams.update(_STYLE | {key: colors[name] for name, keys in _COLORED.items() for key in keys})
        figure = draw()
        for text in figure.findobj(Text) if len(glyphs.families) > 1 else ():
            text.set_fontfamily(glyphs.families)
        dpi = min(_DPI, _MAX_PIXELS / max(figure.get_size_inches()))
        figure.savefig(file, format=suffix, dpi=dpi, metadata=_METADATA[suffix])
    _warn_of_missing(glyphs)
    return file.getvalue()


def _warn_of_missing(glyphs: Glyphs) -> None:
    if glyphs.missing:
        shown, more = " ".join([*glyphs.missing][:10]), " ..." * (len(glyphs.missing) > 10)
        message = f"no font that matplotlib finds has {shown}{more}; the picture has their code points"
        warnings.warn(ResultWarning(message), stacklevel=2)


class Heading(NamedTuple):
    """Lines above a figure: of the title, and of notes; none if figures have no titles. height: in inches."""

    title: Sequence[str]
    notes: Sequence[str]

    @classmethod
    def of(cls, title: str, text: str, notes: Sequence[str], width: float) -> "Heading":
        """Lines of a figure of this width: the title, two of the text, and the notes."""
        if not look().titled:
            return cls([], [])
        room = width - 2 * MARGIN
        shown = [line for note in dict.fromkeys(notes) if note for line in wrap_caption(note, room, 3)]
        of_text = wrap_caption(text, room, 2) if text and _is_drawable(text) else []
        return cls(wrap_caption(title, room, 3, TITLE_SIZE) if title else [], [*of_text, *shown])

    @property
    def height(self) -> float:
        lines = 0.2 * len(self.title) + LINE_HEIGHT * len(self.notes) + 0.05 * bool(self.title and self.notes)
        return 0.12 + lines + 0.1 * bool(lines)

    def write(self, figure: Figure) -> None:
        for number, line in enumerate(self.title):
            write_line(figure, 0.12 + 0.2 * number, line, TITLE_SIZE)
        first = self.height - 0.1 - LINE_HEIGHT * len(self.notes)
        for number, line in enumerate(self.notes):
            write_line(figure, first + LINE_HEIGHT * number, line, TEXT_SIZE, look().colors.muted)


def _is_drawable(text: str) -> bool:
    lacking = sum(not has_glyph(character) for character in text)
    return lacking <= _UNDRAWABLE * len(text)


def headed_figure(width: float, body: float, heading: Heading) -> Figure:
    """A figure of this width with a body of this height in inches, below the heading."""
    figure = Figure(figsize=(width, heading.height + body))
    heading.write(figure)
    return figure


def write_line(figure: Figure, top: float, text: str, size: float = TEXT_SIZE, color: str | None = None) -> None:
    across, down = figure.get_size_inches()
    figure.text(MARGIN / across, 1 - top / down, text, fontsize=size, color=color or look().colors.ink, va="top")


def write_title(figure: Figure, title: str) -> None:
    """Write the title of a figure with a constrained layout, unless figures have none."""
    if title and look().titled:
        room = figure.get_size_inches()[0] - 2 * MARGIN
        figure.suptitle("\n".join(wrap_caption(title, room, 3, TITLE_SIZE)), fontsize=TITLE_SIZE, x=0.02, ha="left")


def add_axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes with this position, from the left and top, and size in inches."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def text_width(text: str, size: float = TEXT_SIZE) -> float:
    """Width in inches, at most: hinting makes the text of a PNG up to 3 % wider."""
    return _text_width(text, size, tuple(font_families()))


@lru_cache(maxsize=10_000)
def _text_width(text: str, size: float, families: Sequence[str]) -> float:
    properties = FontProperties(family=[*families], size=size)
    width, _, _ = TextToPath().get_text_width_height_descent(text, properties, ismath=False)
    return 1.03 * float(width) / 72


def truncate_to(text: str, inches: float, size: float = TEXT_SIZE) -> str:
    """A caption of at most 120 characters, truncated with … to a width."""
    whole = figure_caption(text, 120)
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


def draw_heat_map(axes: Axes, values: np.ndarray, scale: Scale, words: Mapping[tuple[int, int], str] = {}) -> None:
    """Draw a heat map, with NaN in gray; words: text of some cells (row, column)."""
    axes.patch.set(facecolor=look().colors.blank)
    colors: Any = _colors_of(scale)
    # "none" keeps one pixel per value in an SVG; "auto" fills the axes, which have the right aspect ratio.
    axes.imshow(np.ma.masked_invalid(values), cmap=colors.cmap, norm=colors.norm, interpolation="none", aspect="auto")
    axes.spines[:].set_linewidth(0.5)
    axes.tick_params(length=0, pad=2)
    for (row, column), word in words.items():
        red, green, blue, _ = map(int, colors.to_rgba(np.asarray(values[row, column]), bytes=True))
        ink = [part / 255 for part in text_color_on((red, green, blue))]
        axes.text(column, row, word, fontsize=SMALL_SIZE, ha="center", va="center", color=ink)


def _colors_of(scale: Scale) -> ScalarMappable:
    of_look = look().colors
    colors = of_look.diverging if scale.diverging else of_look.sequential
    interpolated = colors if isinstance(colors, str) else LinearSegmentedColormap.from_list("minitf", [*colors])
    return ScalarMappable(Normalize(*scale.ends), interpolated)


def distinct_colors(count: int) -> list[tuple[float, float, float]]:
    """`count` different colors; of more than ten, neighbors differ in hue by the golden ratio, and in luminance."""
    if count <= 10:
        return [matplotlib.colormaps["tab10"](number)[:3] for number in range(count)]
    return [_color_of(number * 0.618034 % 1, (0.12, 0.22, 0.36)[number % 3]) for number in range(count)]


def _color_of(hue: float, wanted: float) -> tuple[float, float, float]:
    """A color of this luminance: yellow is as visible on white as blue, and blue on black as yellow."""
    lightness = bisect_left(range(256), wanted, key=lambda n: luminance(*colorsys.hls_to_rgb(hue, n / 255, 0.7))) / 255
    return colorsys.hls_to_rgb(hue, lightness, 0.7)


def name_lines(axes: Axes, lines: Mapping[str, Line2D]) -> None:
    """The legend of lines by name: within the axes, or right of them if there are many."""
    outside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "ncols": 1 if len(lines) <= 20 else 2}
    placed: dict[str, Any] = outside if len(lines) > MOST_WITHIN else {}
    legend = axes.legend([*lines.values()], [""] * len(lines), frameon=False, **placed)
    # legend() would leave out names that begin with an underscore.
    for text, name in zip(legend.get_texts(), lines, strict=True):
        text.set_text(truncate_to(name, 2.0))


def add_colorbar(figure: Figure, scale: Scale, left: float, top: float, height: float) -> None:
    """Add the colorbar of maps of this height, with its label in at most two lines."""
    height = min(max(height, COLORBAR_HEIGHT[0]), COLORBAR_HEIGHT[1])
    extend = "max" if scale.open_end else "neither"
    bar = figure.colorbar(_colors_of(scale), cax=add_axes(figure, left, top, 0.13, height), extend=extend)
    bar.outline.set_linewidth(0.5)
    bar.set_label("\n".join(wrap_caption(scale.label, height, 2)))
