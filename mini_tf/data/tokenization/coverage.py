"""How much of a text a tokenizer knows: what becomes unknown is told, what vanishes in silence is told or refused."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.system.errors import DataFault
from mini_tf.system.strict_json import short

FEW = 100
"""Characters; of fewer one that is held out may be a large share."""
MOST_DROPPED, MOST_MISSING = 0.2, 0.8
"""Shares of the characters: those that vanish in silence, and those together with what becomes unknown (few may not)."""
TOLD = 0.001
"""Of less than this share that vanishes nothing is said: a normalizer may join two characters."""
_PASSAGES, _LENGTH = 64, 1024
"""Of each batch so many passages of so many characters are decoded again."""


class Coverage:
    """Counts while a text is encoded. White space counts nowhere, since many tokenizers write it in another way."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._unknown: Counter[str] = Counter()
        self._sampled = self._kept = self._replaced = 0

    def count_unknown(self, text: str, ids: np.ndarray) -> None:
        """Of one document, and its ids, what became the unknown token."""
        unk = self._tokenizer.vocabulary.unk
        if unk is not None and (ids == unk).any():
            self._unknown += self._tokenizer.count_unknown_text(text)

    def sample(self, texts: Sequence[str]) -> None:
        """Sees what comes back of passages that lie spread over a batch of documents."""
        passages = [_middle(text) for text in texts[:: 1 + len(texts) // _PASSAGES]]
        unk = self._tokenizer.vocabulary.unk
        for passage, ids in zip(passages, self._tokenizer.encode_batch(passages), strict=True):
            known = ids[ids != unk] if unk is not None else ids
            self._sampled += _visible(passage)
            self._kept += _visible(self._tokenizer.decode(known))
            if len(known) < len(ids):
                self._replaced += sum(_visible(one) * n for one, n in self._tokenizer.count_unknown_text(passage).items())

    def notes(self) -> list[str]:
        """What is to be told of the whole text. DataFault where too little of it is left to learn from."""
        missing = (self._sampled - self._kept) / max(1, self._sampled)
        dropped = missing - self._replaced / max(1, self._sampled)
        few = self._sampled < FEW
        if dropped > MOST_DROPPED or missing > (MOST_DROPPED if few else MOST_MISSING):
            more = f"give more text: of {self._sampled} characters the held-out ones are unknown to what learns from the others"
            hint = more if few else "take a tokenizer made for such text, or kind bpe"
            raise DataFault(f"the tokenizer loses {missing:.0%} of the text's characters", hint=hint)
        notes = []
        if self._unknown:
            first = ", ".join(f"{short(text)!r} {n} times" for text, n in self._unknown.most_common(5))
            rest = f" and {len(self._unknown) - 5} others" if len(self._unknown) > 5 else ""
            notes.append(f"{self._unknown.total():,} characters are not in the tokenizer and become its unknown token: {first}{rest}")
        if dropped > TOLD:
            notes.append(f"about {dropped:.1%} of the text's characters are not in the tokenizer and vanish without a trace")
        return notes


def _middle(text: str) -> str:
    start = max(0, (len(text) - _LENGTH) // 2)
    return text[start : start + _LENGTH]


def _visible(text: str) -> int:
    return len("".join(text.split()))
