"""The words of token ids as keys to hash: of the word, its shape, and its prefixes and suffixes.

A pure function of the ids and the text of each id, so that a run that is opened again computes the same.
"""

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

_CACHED_WORDS = 2**16


def words_at(ids: np.ndarray, is_token: np.ndarray, at: np.ndarray, texts: Sequence[str]) -> list[str]:
    """The words that begin at the flat positions `at`, in order, of ids (B, L); each ends where the next one begins.

    is_token (B, L): False at padding. texts: of each id (`Vocabulary.texts`).
    """
    ends = np.minimum(np.append(at[1:], ids.size), (at // ids.shape[1] + 1) * ids.shape[1])
    flat, inside = ids.flatten().tolist(), is_token.flatten().tolist()
    spans = (range(first, last) for first, last in zip(at.tolist(), ends.tolist(), strict=True))
    found = ("".join(texts[flat[n]] for n in span if inside[n]) for span in spans)
    return ["".join(word.split()) for word in found]  # a tokenizer may write a space before punctuation


def word_keys(words: Sequence[str], n_affixes: int) -> np.ndarray:
    """(T, 2 + 2 n): int64 keys of each word in lower case, of its shape, and of its prefixes and suffixes of 1 to n."""
    return np.array([_keys(word, n_affixes) for word in words], np.int64).reshape(len(words), 2 + 2 * n_affixes)


@lru_cache(_CACHED_WORDS)
def _keys(word: str, n_affixes: int) -> tuple[int, ...]:
    lower = word.lower()
    affixes = [part for n in range(1, n_affixes + 1) for part in (lower[:n], lower[-n:])]
    return tuple(_key(one) for one in (lower, shape(word), *affixes))


def _key(text: str) -> int:
    digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def shape(word: str) -> str:
    """The shape of a word, runs shortened: "McDonald's" is AaAa'a, "2024" is 0."""
    marks = "".join("A" if one.isupper() else "a" if one.isalpha() else "0" if one.isdigit() else one for one in word)
    return re.sub(r"(.)\1+", r"\1", marks, flags=re.DOTALL)
