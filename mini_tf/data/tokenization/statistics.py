"""Statistics of a tokenizer on a text: tokens per word, bytes per token, unknown text, share of the vocabulary used."""

import re
from collections import Counter
from typing import Any

import numpy as np

from mini_tf.data.tokenization.tokenizer import Tokenizer

N_PIECES = 10
"""Number of most and of least frequent pieces."""
DIFFERENCE_LENGTH = 20
"""Characters reported from the first difference on."""


def count_pieces_by_length(tokenizer: Tokenizer) -> dict[int, int]:
    """The number of pieces by length in characters, without ## and special tokens; a partial character counts 1."""
    ids = [id for id in range(tokenizer.vocabulary.size) if id not in tokenizer.vocabulary.special_ids]
    texts = (re.sub(r"\\x[0-9a-f]{2}", "-", piece) for piece in tokenizer.pieces(ids))
    return dict(sorted(Counter(len(text.removeprefix("##") if tokenizer.is_wordpiece else text) for text in texts).items()))


def text_statistics(tokenizer: Tokenizer, text: str) -> dict[str, Any]:
    """The statistics of `minitf tokenizer stats`; ratios are None if the text has no words or tokens."""
    ids = tokenizer.encode(text)
    counts = np.bincount(ids, minlength=tokenizer.vocabulary.size)
    used = np.flatnonzero(counts)
    order = used[np.lexsort((used, -counts[used]))]
    named = [{"id": int(id), "piece": piece, "count": int(counts[id])} for id, piece in zip(order, tokenizer.pieces(order), strict=True)]
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
    at = next((i for i, (one, other) in enumerate(zip(text, back, strict=False)) if one != other), min(len(text), len(back)))
    return {"at": at, "text": text[at : at + DIFFERENCE_LENGTH], "back": back[at : at + DIFFERENCE_LENGTH]}
