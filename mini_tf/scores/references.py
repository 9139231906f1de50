"""References of generated texts: one or several per text."""

from collections.abc import Sequence


def reference_lists(texts: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """The references of each text as a list.

    Raises ValueError if there are no texts, if the lengths differ, or if a text has no reference.
    """
    if len(texts) != len(references):
        raise ValueError(f"texts and references must have the same length: {len(texts)} != {len(references)}")
    if not texts:
        raise ValueError("there must be at least one text")
    each = [[one] if isinstance(one, str) else list(one) for one in references]
    if [] in each:
        raise ValueError(f"references[{each.index([])}]: there must be at least one")
    return each
