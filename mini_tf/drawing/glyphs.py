"""Labels of figures: characters that the font (DejaVu Sans, part of matplotlib) lacks become code points, `⟨6F22⟩`."""

from collections.abc import Iterable
from functools import cache, partial

from mini_tf.drawing.labels import caption, is_invisible, label
from mini_tf.drawing.plotting import FontProperties, FT2Font, findfont

FONT = "DejaVu Sans"


def missing_glyphs(texts: Iterable[str]) -> list[str]:
    """Distinct characters that the font lacks, in order of occurrence; figures show their code points."""
    characters = dict.fromkeys(character for text in texts for character in text)
    return [character for character in characters if not is_invisible(character) and not _has_glyph(character)]


def _has_glyph(character: str) -> bool:
    return ord(character) in _code_points_of_font()


@cache
def _code_points_of_font() -> frozenset[int]:
    return frozenset(FT2Font(findfont(FontProperties(family=FONT))).get_charmap())


figure_label = partial(label, drawable=_has_glyph)
"""`labels.label` with characters of the font."""
figure_caption = partial(caption, drawable=_has_glyph)
"""`labels.caption` with characters of the font."""
