"""A text as a model is given it, and which of its tokens stand for which of its characters."""

from dataclasses import dataclass, replace

from mini_tf.generation.writing import prompt_ids
from mini_tf.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Framed:
    """The ids of a text, framed as in training. spans: the characters each stands for, None for an opening separator."""

    ids: list[int]
    spans: list[tuple[int, int] | None]
    n_cut: int = 0

    def cut(self, context: int) -> "Framed":
        """The first `context` tokens; `n_cut` says how many did not fit."""
        return replace(self, ids=self.ids[:context], spans=self.spans[:context], n_cut=max(0, len(self.ids) - context))

    def within(self, first: int, last: int) -> list[int]:
        """The indices of the tokens that stand for any of the characters [first, last)."""
        return [i for i, span in enumerate(self.spans) if span is not None and span[0] < last and span[1] > first]


def framed(tokenizer: Tokenizer, text: str, separated: bool) -> Framed:
    """`separated`: documents in training are, so a separator opens the text."""
    ids, (_, spans) = prompt_ids(tokenizer, text, separated), tokenizer.spans(text)
    opening: list[tuple[int, int] | None] = [None] * (len(ids) - len(spans))
    return Framed(ids, [*opening, *((int(first), int(last)) for first, last in spans)])
