"""References of a text: one, or several alternatives."""

from collections.abc import Sequence


def alternatives(texts: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """The references of each text, at least one.

    ValueError if there are no texts, numbers differ, or a text has no reference.
    """
    if len(texts) != len(references):
        raise ValueError(f"texts and references must have the same length: {len(texts)} != {len(references)}")
    if not texts:
        raise ValueError("there must be a text")
    each = [[one] if isinstance(one, str) else list(one) for one in references]
    if [] in each:
        raise ValueError(f"references[{each.index([])}]: there must be one")
    return each
