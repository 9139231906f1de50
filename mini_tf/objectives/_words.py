"""Keys of the words of a row, of their shapes and affixes, for a linear model of them (`nn.layers.word_features`)."""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.tokenization.word_shape import shape

_CACHED_WORDS = 2**16


def words_of(rows: Rows, at: np.ndarray, texts: Sequence[str]) -> list[str]:
    """The text of the words that begin at the flat positions `at` of rows; each ends where the next one begins.

    texts: of each id (`Vocabulary.texts`).
    """
    length = rows.ids.shape[1]
    real = np.ones_like(rows.ids, dtype=bool) if rows.segments is None else rows.segments != 0
    ends = np.minimum(np.append(at[1:], rows.ids.size), (at // length + 1) * length)
    ids = np.where(real, rows.ids, -1).flatten()
    spans = (ids[first:last] for first, last in zip(at, ends, strict=True))
    found = ("".join(texts[id] for id in span.tolist() if id >= 0) for span in spans)
    return ["".join(word.split()) for word in found]  # a tokenizer may split before punctuation, as if words began there


def word_keys(words: Sequence[str], n_affixes: int) -> np.ndarray:
    """(T, 2 + 2 n): int64 keys of each word in lower case, of its shape, and of n prefixes and suffixes."""
    return np.array([_keys(word, n_affixes) for word in words], np.int64).reshape(len(words), 2 + 2 * n_affixes)


@lru_cache(_CACHED_WORDS)
def _keys(word: str, n_affixes: int) -> tuple[int, ...]:
    lower = word.lower()
    affixes = [part for n in range(1, n_affixes + 1) for part in (lower[:n], lower[-n:])]
    return tuple(_key(one) for one in (lower, shape(word), *affixes))


def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest(), "little", signed=True)
