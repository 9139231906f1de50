"""Measure the share of a text that becomes the unknown token, and the share that the tokenizer drops."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.system.errors import DataFault
from mini_tf.system.strict_json import short

SHORT_TEXT = 100
"""Characters; in a shorter text, one validation character may be a large share."""
MAX_DROPPED, MAX_LOST = 0.2, 0.8
"""Largest shares of characters: dropped, and dropped or unknown (in a short text MAX_DROPPED holds for both)."""
MIN_REPORTED = 0.001
"""A smaller dropped share is not reported: a normalizer may join two characters."""
_PASSAGES, _LENGTH = 64, 1024
"""Passages per batch that are encoded and decoded, and their length in characters."""


class Coverage:
    """Counts while a text is encoded. Whitespace is not counted, since many tokenizers change it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._unknown: Counter[str] = Counter()
        self._sampled = self._decoded = self._replaced = 0

    def count_unknown(self, text: str, ids: np.ndarray) -> None:
        """Count what became the unknown token in a document with these ids."""
        unk = self._tokenizer.vocabulary.unk
        if unk is not None and (ids == unk).any():
            self._unknown += self._tokenizer.count_unknown_text(text)

    def sample(self, texts: Sequence[str]) -> None:
        """Encode and decode passages spread over a batch of documents, and count what is lost."""
        passages = [_middle(text) for text in texts[:: 1 + len(texts) // _PASSAGES]]
        unk = self._tokenizer.vocabulary.unk
        for passage, ids in zip(passages, self._tokenizer.encode_batch(passages), strict=True):
            known = ids[ids != unk] if unk is not None else ids
            self._sampled += _visible(passage)
            self._decoded += _visible(self._tokenizer.decode(known))
            if len(known) < len(ids):
                unknown = self._tokenizer.count_unknown_text(passage)
                self._replaced += sum(_visible(text) * n for text, n in unknown.items())

    def to_json(self) -> dict[str, Any]:
        return {"unknown": self._unknown, "characters": [self._sampled, self._decoded, self._replaced]}

    def add(self, counts: Mapping[str, Any]) -> None:
        """Add what another `Coverage` has counted (`to_json`) on a later part of the text."""
        self._unknown.update(counts["unknown"])
        sampled, decoded, replaced = counts["characters"]
        self._sampled, self._decoded = self._sampled + sampled, self._decoded + decoded
        self._replaced += replaced

    def notes(self) -> list[str]:
        """Notes on the whole text. Raises DataFault if too much of it is lost."""
        lost = (self._sampled - self._decoded) / max(1, self._sampled)
        dropped = lost - self._replaced / max(1, self._sampled)
        short_text = self._sampled < SHORT_TEXT
        if dropped > MAX_DROPPED or lost > (MAX_DROPPED if short_text else MAX_LOST):
            more = f"use more text: the {self._sampled} characters do not suffice to train a tokenizer"
            hint = more if short_text else "use a tokenizer trained on such text, or kind bpe"
            raise DataFault(f"the tokenizer loses {lost:.0%} of the characters", hint=hint)
        notes = []
        if self._unknown:
            first = ", ".join(f"{short(text)!r} {n} times" for text, n in self._unknown.most_common(5))
            rest = f" and {len(self._unknown) - 5} others" if len(self._unknown) > 5 else ""
            names = {len(text) > 1: "words" if len(text) > 1 else "characters" for text in self._unknown}
            units = " and ".join(names[is_word] for is_word in sorted(names, reverse=True))
            message = f"{self._unknown.total():,} {units} are not in the vocabulary and become the unknown token"
            notes.append(f"{message}: {first}{rest}")
        if dropped > MIN_REPORTED:
            notes.append(f"the tokenizer drops about {dropped:.1%} of the characters")
        return notes


def _middle(text: str) -> str:
    start = max(0, (len(text) - _LENGTH) // 2)
    return text[start : start + _LENGTH]


def _visible(text: str) -> int:
    return len("".join(text.split()))


N_PIECES = 10
"""Number of most and of least frequent pieces."""
DIFFERENCE_LENGTH = 20
"""Characters reported from the first difference on."""


def count_pieces_by_length(tokenizer: Tokenizer) -> dict[int, int]:
    """The number of pieces by length in characters, without ## and special tokens; a partial character counts 1."""
    ids = [id for id in range(tokenizer.vocabulary.size) if id not in tokenizer.vocabulary.special_ids]
    inside = "##" if tokenizer.is_wordpiece else ""
    texts = (re.sub(r"\\x[0-9a-f]{2}", "-", piece).removeprefix(inside) for piece in tokenizer.pieces(ids))
    return dict(sorted(Counter(map(len, texts)).items()))


def text_statistics(tokenizer: Tokenizer, text: str) -> dict[str, Any]:
    """The statistics of `minitf tokenizer stats`; ratios are None if the text has no words or tokens."""
    ids = tokenizer.encode(text)
    counts = np.bincount(ids, minlength=tokenizer.vocabulary.size)
    used = np.flatnonzero(counts)
    order = used[np.lexsort((used, -counts[used]))]
    named = [
        {"id": int(id), "piece": piece, "count": int(counts[id])}
        for id, piece in zip(order, tokenizer.pieces(order), strict=True)
    ]
    n_words, n_bytes = len(text.split()), len(text.encode())
    unknown = tokenizer.count_unknown_text(text)
    return {
        "tokens": len(ids),
        "characters": len(text),
        "bytes": n_bytes,
        "words": n_words,
        "tokens_per_word": len(ids) / n_words if n_words else None,
        "bytes_per_token": n_bytes / len(ids) if len(ids) else None,
        "unknown_tokens": unknown.total(),
        "unknown": dict(unknown.most_common(N_PIECES)),
        "vocabulary_used": len(used) / tokenizer.vocabulary.size,
        "most_frequent": named[:N_PIECES],
        "least_frequent": named[::-1][:N_PIECES],
        "difference": difference(text, tokenizer.decode(ids)),
    }


def difference(text: str, back: str) -> dict[str, Any] | None:
    """The first position where a text and its decoded ids differ, and both texts from there; None if they are equal."""
    if text == back:
        return None
    differ = (n for n, (before, after) in enumerate(zip(text, back, strict=False)) if before != after)
    at = next(differ, min(len(text), len(back)))
    return {"at": at, "text": text[at : at + DIFFERENCE_LENGTH], "back": back[at : at + DIFFERENCE_LENGTH]}
