"""Labels for figures: what the figures' font (DejaVu Sans, which comes with matplotlib) lacks is written as its number, `⟨6F22⟩`."""

from collections.abc import Iterable
from functools import cache, partial

from mini_tf.drawing.labels import caption, is_shapeless, label
from mini_tf.drawing.plotting import FontProperties, FT2Font, findfont

FONT = "DejaVu Sans"


def missing_glyphs(texts: Iterable[str]) -> list[str]:
    """The characters, each once and in the order they come, that figures show as numbers because the font lacks them."""
    characters = dict.fromkeys(character for text in texts for character in text)
    return [character for character in characters if not is_shapeless(character) and not _has_glyph(character)]


def _has_glyph(character: str) -> bool:
    return ord(character) in _characters_of_the_font()


@cache
def _characters_of_the_font() -> frozenset[int]:
    return frozenset(FT2Font(findfont(FontProperties(family=FONT))).get_charmap())


figure_label = partial(label, drawable=_has_glyph)
"""A token as `labels.label` shows it, in characters that the font has."""
figure_caption = partial(caption, drawable=_has_glyph)
"""A title as `labels.caption` shows it, in characters that the font has."""
