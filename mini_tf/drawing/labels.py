"""Tokens as words beside a picture: every character visible, none able to steer a terminal, cut to the room there is.

A blank is `·`, a newline `↵`, a tab `⇥`; what else has no shape of its own (control codes, bidi marks, joiners, fillers, halves of a
surrogate pair, private and unassigned characters) is its number: `⟨1B⟩`. An empty token is `⟨⟩`. The text itself is never read as markup.
"""

import unicodedata
from collections.abc import Callable, Sequence

from rich.cells import cell_len

_SHAPELESS = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
_SIGNS = {"\n": "↵", "\t": "⇥"}
_UNSEEN = frozenset(
    {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x1D159}.union(
        range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0)
    )
)
"""Letters, signs and marks by their category, but nothing is drawn of them: fillers, the empty Braille cell, variation selectors."""


def label(token: str, width: int | None = None, drawable: Callable[[str], bool] = lambda character: True) -> str:
    """A token, its blanks visible too, in at most `width` terminal cells; what is not `drawable` becomes its number."""
    return fitted([shape if shape != " " else "·" for shape in shapes(token, drawable)] or ["⟨⟩"], width)


def caption(text: str, width: int | None = None, drawable: Callable[[str], bool] = lambda character: True) -> str:
    """A title or a sentence: as `label`, but its blanks stay blanks."""
    return fitted(shapes(text, drawable), width)


def shapes(text: str, drawable: Callable[[str], bool] = lambda character: True) -> list[str]:
    """What is seen of a text, character by character; a mark that stands on nothing gets a ring to stand on."""
    seen: list[str] = []
    for character in text:
        if character in _SIGNS:
            seen.append(_SIGNS[character])
        elif character != " " and (is_shapeless(character) or not drawable(character)):
            seen.append(f"⟨{ord(character):02X}⟩")
        elif cell_len(character) == 0:
            seen[-1:] = [(seen[-1] if seen else "◌") + character]
        else:
            seen.append(character)
    return seen


def is_shapeless(character: str) -> bool:
    """Whether nothing, or nothing certain, would be seen of a character."""
    return unicodedata.category(character) in _SHAPELESS or ord(character) in _UNSEEN


def fitted(seen: Sequence[str], width: int | None) -> str:
    """The shapes in a row, cut with … to a width in terminal cells, where Chinese characters and emoji take two."""
    seen = [shape[:8] for shape in seen]  # a hundred accents on one letter are a flood too
    if width is None or sum(map(cell_len, seen)) <= width:
        return "".join(seen)
    kept, room = [], width - 1
    for shape in seen:
        room -= cell_len(shape)
        if room < 0:
            break
        kept.append(shape)
    return "".join(kept) + "…" if width > 0 else ""
