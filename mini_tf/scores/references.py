"""What a text is held to: one reference, or several of which any will do."""

from collections.abc import Sequence


def alternatives(texts: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """For each text its references, one or more.

    ValueError where there are no texts, not as many references as texts, or a text without any.
    """
    if len(texts) != len(references):
        raise ValueError(f"texts and references must be as many: {len(texts)} != {len(references)}")
    if not texts:
        raise ValueError("there must be a text")
    each = [[one] if isinstance(one, str) else list(one) for one in references]
    if [] in each:
        raise ValueError(f"references[{each.index([])}]: there must be one")
    return each
