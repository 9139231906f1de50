"""Verbatim copies: the share of a text that occurs in the training data in long runs of words."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from mini_tf.data.store import Store
from mini_tf.data.tokenization.tokenizer import Tokenizer

MIN_RUN = 8
"""Consecutive words that must occur in both texts to count as copied."""
MAX_TOKENS = 10_000_000
"""Maximum number of training tokens that a text is compared with."""
_BLOCK, _CHUNK = 1 << 22, 1 << 16  # tokens that are hashed, and decoded, at once
_BASE = 0x9E3779B97F4A7C15  # of polynomials modulo 2^64; odd, so that no bit of an id is lost
_TO_INDEX = np.uint64(48)  # shift of a hash to its upper 16 bits, the index in a table


def copied_share(text: str, store: Store, tokenizer: Tokenizer) -> float:
    """Share (0 to 1) of the words of `text` in runs of MIN_RUN or more that a document contains with the same spelling,
    punctuation and space between them.

    Runs of token ids are compared by their hashes, and only where those are equal the text itself.
    """
    words = [match.span() for match in re.finditer(r"\w+", text)]
    runs = [(words[n], words[n + MIN_RUN - 1]) for n in range(len(words) - MIN_RUN + 1)]
    copied: set[int] = set()
    for passage in _passages(text, runs, store, tokenizer) if runs else ():
        for n, (first, last) in enumerate(runs):
            if re.search(rf"(?<!\w){re.escape(text[first[0] : last[1]])}(?!\w)", passage):
                copied.update(range(n, n + MIN_RUN))
    return len(copied) / len(words) if words else 0.0


def _passages(
    text: str, runs: Sequence[tuple[tuple[int, int], tuple[int, int]]], store: Store, tokenizer: Tokenizer
) -> Iterator[str]:
    """The training data around each place that has as many ids in a row in common with `text` as every run has within.

    runs: the spans in `text` of the first and the last word of each. These are left out, since a tokenizer may split
    them in another way where something else precedes or follows.
    """
    ids, spans = tokenizer.spans(text)
    inner = min(sum(first[1] <= start and end <= last[0] for start, end in spans) for first, last in runs)
    longest = max(sum(first[0] < end and start < last[1] for start, end in spans) for first, last in runs)
    limit, margin = min(len(store.ids), MAX_TOKENS), longest + inner
    places = _places(ids, store.ids[:limit], inner) if inner else np.arange(limit)
    apart = (np.diff(places) > margin) | (np.diff(places // _CHUNK) > 0)
    for group in np.split(places, np.flatnonzero(apart) + 1) if len(places) else ():
        first, last = int(group[0]), int(group[-1]) + 1
        for n in range(max(0, _document_at(store, first)), _document_at(store, last - 1) + 1):
            start, end = store.span(n)
            yield tokenizer.decode(store.ids[max(start, first - margin) : min(end, last + margin, limit)])


def _document_at(store: Store, place: int) -> int:
    return int(np.searchsorted(store.starts, place, "right")) - 1


def _places(ids: np.ndarray, corpus: np.ndarray, length: int) -> np.ndarray:
    """The places of a corpus at which `length` ids in a row are also in `ids`, and a few others with the same hash."""
    wanted = np.unique(_hashes(ids, length))
    table = np.zeros(1 << 16, bool)
    table[wanted >> _TO_INDEX] = True
    places = [np.zeros(0, np.int64)]
    for start in range(0, len(corpus), _BLOCK):
        hashes = _hashes(corpus[start : start + _BLOCK + length - 1], length)
        likely = np.flatnonzero(table[hashes >> _TO_INDEX])
        places.append(start + likely[np.isin(hashes[likely], wanted)])
    return np.concatenate(places)


def _hashes(ids: np.ndarray, length: int) -> np.ndarray:
    """(len(ids) - length + 1,): uint64, a polynomial of each run of `length` ids; empty if there are fewer."""
    hashes, power, span = ids.astype(np.uint64), _BASE, 1  # of runs of 1, 2, 4, ... ids
    result = np.zeros(max(0, len(ids) - length + 1), np.uint64)
    done = 0
    while span <= length:
        if length & span:
            result = result * np.uint64(power) + hashes[done : done + len(result)]
            done += span
        hashes = hashes[:-span] * np.uint64(power) + hashes[span:]
        power, span = power * power % 2**64, 2 * span
    final: np.ndarray = result * np.uint64(_BASE)
    return final
