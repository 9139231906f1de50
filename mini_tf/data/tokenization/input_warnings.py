"""What a model does not read of texts: what is longer than its context, and what its tokenizer has no token for.

Counted over all texts, so that it is said once, however many they are.
"""

from collections import Counter
from collections.abc import Iterable

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.system.strict_json import short

NAMED = 5
"""Unknown characters that are named; the others are counted."""


class InputWarnings:
    """unit: what a text is called, in the singular. cut: which of its tokens a text that is too long loses, "first" or "last"."""

    def __init__(self, tokenizer: Tokenizer, context: int, unit: str = "prompt", cut: str = "first") -> None:
        self._tokenizer, self._context, self._unit, self._cut = tokenizer, context, unit, cut
        self._n = self._n_cut = 0
        self._one = ""
        self._unknown: Counter[str] = Counter()

    def add(self, parts: Iterable[str], length: int = 0, n_cut: int = 0, place: str = "") -> list[str]:
        """Count a text of `length` tokens, of which `n_cut` are not read; the notes on this one alone.

        parts: as they are encoded. place: "stdin:3".
        """
        unknown = sum(map(self._tokenizer.count_lost_text, parts), Counter[str]())
        self._n, self._unknown = self._n + 1, self._unknown + unknown
        one = f"the {self._unit} has {length} tokens; the {self._cut} {n_cut} are cut off, the model reads the others" if n_cut else ""
        if one:
            self._n_cut, self._one = self._n_cut + 1, f"{place}: {one}" if place else one
        return [*filter(None, [one]), *self._of_unknown(unknown)]

    def notes(self) -> list[str]:
        """What is to be said of all of them."""
        cut = [self._one] if self._n_cut == 1 else []
        if self._n_cut > 1:
            longer = f"{self._n_cut:,} of {self._n:,} {self._unit}s are longer than the context of {self._context} tokens"
            cut = [f"{longer}; the {self._cut} tokens of each are cut off, the model reads the others"]
        return [*cut, *self._of_unknown(self._unknown)]

    def _of_unknown(self, unknown: Counter[str]) -> list[str]:
        if not unknown:
            return []
        named = ", ".join(repr(short(text)) for text in list(unknown)[:NAMED])
        more = len(unknown) - NAMED
        rest = f" and {more:,} other{'s' * (more > 1)}" if more > 0 else ""
        total = f" ({unknown.total():,} in all)" if unknown.total() > min(len(unknown), NAMED) else ""
        instead = "they are left out" if self._tokenizer.vocabulary.unk is None else "the model reads its unknown token there"
        return [f"the tokenizer has no token for {named}{rest}{total}; {instead}"]
