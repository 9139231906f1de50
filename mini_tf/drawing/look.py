"""How pictures look: light or dark, with or without titles, and their colors.

The look is set around the drawing, and not handed down. Maps of figures are white to dark blue, or blue to red if
diverging, which is safe for color-blind readers, also in print.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

PICTURES = (".png", ".svg", ".pdf")
"""Suffixes of picture files."""


class Palette(NamedTuple):
    """Colors: background, text, text of less weight, thin lines, cells without a value, and the colors of maps.

    A name of maps is one of matplotlib's, a list is interpolated.
    """

    paper: str
    ink: str
    muted: str
    rule: str
    blank: str
    sequential: str | Sequence[str]
    diverging: str | Sequence[str]


LIGHT = Palette("white", "black", "#555555", "#dddddd", "#e2e2e2", "Blues", "RdBu_r")
DARK = Palette(
    *("#15181c", "#ececec", "#b0b4b9", "#43484e", "#3b4046"),
    ("#0c1824", "#12436f", "#2f7fc4", "#8cc4f5", "#f2f9ff"),
    ("#8cc4f5", "#1f609e", "#1c1e21", "#a8413c", "#ffab9b"),
)


@dataclass(frozen=True)
class Look:
    """titled: with title and the notes below it."""

    dark: bool = False
    titled: bool = True

    @property
    def colors(self) -> Palette:
        return DARK if self.dark else LIGHT


_looks = [Look()]


def look() -> Look:
    return _looks[-1]


@contextmanager
def drawn_as(chosen: Look) -> Iterator[None]:
    """Within this block pictures look as chosen."""
    _looks.append(chosen)
    try:
        yield
    finally:
        _looks.pop()


RGB = tuple[int, int, int]


def text_color_on(color: RGB) -> RGB:
    """Black or white, whichever has more contrast on a color (WCAG 2)."""
    red, green, blue = color
    return (0, 0, 0) if (luminance(red / 255, green / 255, blue / 255) + 0.05) ** 2 > 1.05 * 0.05 else (255, 255, 255)


def luminance(*color: float) -> float:
    """The relative luminance of red, green and blue from 0 to 1 (WCAG 2)."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
