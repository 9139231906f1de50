"""Labels of tokens: every character visible, no control characters, truncated to a width.

A space is `·`, a newline `↵`, a tab `⇥`; other invisible characters (control codes, bidi marks, joiners, fillers,
surrogates, private and unassigned characters) become code points: `⟨1B⟩`. An empty token is `⟨⟩`. Markup is not
interpreted.
"""

import unicodedata
from collections.abc import Callable, Sequence

from rich.cells import cell_len

_INVISIBLE_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
_SIGNS = {"\n": "↵", "\t": "⇥"}
_INVISIBLE_CHARACTERS = frozenset(
    {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x1D159}.union(
        range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0)
    )
)
"""Invisible characters of visible categories: fillers, the blank Braille pattern, variation selectors."""


def label(token: str, width: int | None = None, drawable: Callable[[str], bool] = lambda character: True) -> str:
    """A token with visible spaces, in at most `width` terminal cells; characters not `drawable` become code points."""
    visible = [character if character != " " else "·" for character in visible_characters(token, drawable)]
    return truncate(visible or ["⟨⟩"], width)


def caption(text: str, width: int | None = None, drawable: Callable[[str], bool] = lambda character: True) -> str:
    """A title or a sentence: as `label`, but with normal spaces."""
    return truncate(visible_characters(text, drawable), width)


def visible_characters(text: str, drawable: Callable[[str], bool] = lambda character: True) -> list[str]:
    """A visible string for each character; combining marks are appended to their base, or to a dotted circle."""
    shown: list[str] = []
    for character in text:
        if character in _SIGNS:
            shown.append(_SIGNS[character])
        elif character != " " and (is_invisible(character) or not drawable(character)):
            shown.append(f"⟨{ord(character):02X}⟩")
        elif cell_len(character) == 0:
            shown[-1:] = [(shown[-1] if shown else "◌") + character]
        else:
            shown.append(character)
    return shown


def is_invisible(character: str) -> bool:
    """Whether a character has no visible glyph, or none in some fonts."""
    return unicodedata.category(character) in _INVISIBLE_CATEGORIES or ord(character) in _INVISIBLE_CHARACTERS


def truncate(characters: Sequence[str], width: int | None) -> str:
    """Join the characters, truncated with … to a width in terminal cells; Chinese characters and emoji take two."""
    characters = [character[:8] for character in characters]  # limits combining marks per character
    if width is None or sum(map(cell_len, characters)) <= width:
        return "".join(characters)
    fitting, room = [], width - 1
    for character in characters:
        room -= cell_len(character)
        if room < 0:
            break
        fitting.append(character)
    return "".join(fitting) + "…" if width > 0 else ""
