"""Import of matplotlib, without subprocesses and with its font list in our cache directory, and the fonts of figures.

The list has the fonts of the usual folders, but not those that only fontconfig knows, so it must not be written where
other programs read it. Characters are those of DejaVu Sans, which is part of matplotlib, else of any font that
matplotlib finds; those that no font has become code points, `⟨6F22⟩`.
"""

import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NoReturn

from mini_tf.drawing.labels import caption, is_invisible, label
from mini_tf.system.cache import redirect_library_caches


@contextmanager
def _no_process() -> Iterator[None]:
    """matplotlib runs `fc-list`, or on a Mac `system_profiler`, to find fonts; an OSError makes it continue without."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError("figures start no process")

    check_output = subprocess.check_output
    subprocess.check_output = refuse
    try:
        yield
    finally:
        subprocess.check_output = check_output


redirect_library_caches()
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # it prints which weight of a font it takes
with _no_process():
    import matplotlib as matplotlib  # `as`: for other files to import from here
    from matplotlib.axes import Axes as Axes
    from matplotlib.cm import ScalarMappable as ScalarMappable
    from matplotlib.collections import LineCollection as LineCollection
    from matplotlib.colors import LinearSegmentedColormap as LinearSegmentedColormap
    from matplotlib.colors import Normalize as Normalize
    from matplotlib.figure import Figure as Figure
    from matplotlib.font_manager import FontEntry, findfont, findSystemFonts, fontManager
    from matplotlib.font_manager import FontProperties as FontProperties
    from matplotlib.ft2font import FT2Font
    from matplotlib.lines import Line2D as Line2D
    from matplotlib.text import Text as Text
    from matplotlib.textpath import TextToPath as TextToPath


FONT = "DejaVu Sans"


@dataclass
class Glyphs:
    """Fonts of a figure, in the order in which a character is looked for, and the characters that none of them has."""

    families: list[str] = field(default_factory=lambda: [FONT])
    missing: dict[str, None] = field(default_factory=dict)

    def have(self, character: str) -> bool:
        """Whether a font has the character; the font is then one of the figure's."""
        code = ord(character)
        if any(code in _code_points_of(family) for family in self.families):
            return True
        if (family := _family_with(code)) is not None:
            self.families.append(family)
        elif not is_invisible(character):
            self.missing[character] = None
        return family is not None


_figures = [Glyphs()]


@contextmanager
def glyphs_of_figure() -> Iterator[Glyphs]:
    """The glyphs of the figure that is drawn in this block."""
    _figures.append(Glyphs())
    try:
        yield _figures[-1]
    finally:
        _figures.pop()


def font_families() -> list[str]:
    """The fonts of the figure that is drawn."""
    return _figures[-1].families


def has_glyph(character: str) -> bool:
    return _figures[-1].have(character)


def _system_fonts() -> list[FontEntry]:
    """Fonts of the usual folders, with those that were installed after matplotlib made its list."""
    with _no_process():
        files = {*findSystemFonts()}
    for file in sorted(files - {font.fname for font in fontManager.ttflist}):
        with suppress(OSError, RuntimeError, NotImplementedError):  # damaged, or of bitmaps
            fontManager.addfont(file)
    return [font for font in fontManager.ttflist if font.fname in files]


@cache
def _family_with(code: int) -> str | None:
    """The family of the first font that has a character; None if none has."""
    return next((name for name in _families() if code in _code_points_of(name)), None)


@cache
def _families() -> list[str]:
    """Families of the system's fonts, upright ones without serifs first, by name."""

    def rank(font: FontEntry) -> tuple[bool, bool, str]:
        plain = "Sans" in font.name or "Gothic" in font.name
        return font.style != "normal" or "Mono" in font.name, not plain, font.name

    return list(dict.fromkeys(font.name for font in sorted(_system_fonts(), key=rank)))


@cache
def _code_points_of(family: str) -> frozenset[int]:
    try:
        return frozenset(FT2Font(findfont(FontProperties(family=family), fallback_to_default=False)).get_charmap())
    except (OSError, RuntimeError, ValueError):  # damaged, or gone since matplotlib listed it
        return frozenset()


figure_label = partial(label, drawable=has_glyph)
"""`labels.label` with characters of the figure's fonts."""
figure_caption = partial(caption, drawable=has_glyph)
"""`labels.caption` with characters of the figure's fonts."""
