"""Directions of self-attention: which tokens a token attends to."""

from collections.abc import Collection
from typing import Literal, get_args

Direction = Literal["causal", "bidirectional", "prefix"]
"""Direction of self-attention: to earlier tokens, to all tokens, or to all tokens of a prefix and earlier tokens."""
_ATTENDED: dict[Direction, str] = {
    "bidirectional": "earlier and later tokens",
    "causal": "earlier tokens",
    "prefix": "a whole prefix and earlier tokens",
}


def attended_tokens(directions: Collection[Direction], source: bool) -> str:
    """The tokens that a token attends to, in words."""
    if source:
        return "a source and earlier target tokens"
    return " or ".join(words for direction, words in _ATTENDED.items() if direction in directions)


def directions_of(supports: Collection[str]) -> list[Direction]:
    """The directions among what a mixer supports, by name."""
    return sorted(direction for direction in get_args(Direction) if direction in supports)
