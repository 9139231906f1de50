"""How a tokenizer fares on a text: tokens a word, bytes a token, what is unknown, how much of the vocabulary is used."""

import re
from collections import Counter
from typing import Any

import numpy as np

from mini_tf.data.tokenization.tokenizer import Tokenizer

SHOWN = 10
"""Most and least frequent pieces."""
AROUND = 20
"""Characters told from a difference on."""


def count_pieces_by_length(tokenizer: Tokenizer) -> dict[int, int]:
    """How many pieces have 1, 2, ... characters, ## and special tokens apart; a byte that is no character counts as one."""
    ids = [id for id in range(tokenizer.vocabulary.size) if id not in tokenizer.vocabulary.special_ids]
    texts = (re.sub(r"\\x[0-9a-f]{2}", "-", piece) for piece in tokenizer.pieces(ids))
    return dict(sorted(Counter(len(text.removeprefix("##") if tokenizer.glued else text) for text in texts).items()))


def text_statistics(tokenizer: Tokenizer, text: str) -> dict[str, Any]:
    """What `minitf tokenizer stats` says of a text; per word and per token is None where there is none."""
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
        "unknown": dict(unknown.most_common(SHOWN)),
        "vocabulary_used": len(used) / tokenizer.vocabulary.size,
        "most_frequent": named[:SHOWN],
        "least_frequent": named[::-1][:SHOWN],
        "difference": difference(text, tokenizer.decode(ids)),
    }


def difference(text: str, back: str) -> dict[str, Any] | None:
    """The first place where a text and what came back of it are not the same, and how both go on there; None if they are equal."""
    if text == back:
        return None
    at = next((i for i, (one, other) in enumerate(zip(text, back, strict=False)) if one != other), min(len(text), len(back)))
    return {"at": at, "text": text[at : at + AROUND], "back": back[at : at + AROUND]}
