"""The most probable legal sequence of tags of each text: Viterbi's algorithm, for all texts at once.

Time O(words * C), not C^2, since the rules (`scores.tag_scheme`) only tell whether an entity may begin or go on.
Source: Viterbi 1967.
"""

from collections.abc import Iterator

import numpy as np

from mini_tf.scores.entities import TagScheme

CHUNK = 1 << 22
"""Largest number of scores of the texts that are decoded at once, with padding."""


def best_tags(scores: np.ndarray, lengths: np.ndarray, scheme: TagScheme) -> np.ndarray:
    """(N,): for each text the legal tags with the largest sum of scores. scores (N, C): finite, of all words in order.

    lengths (S,): words of each text. At equal scores the tags are deterministic.
    """
    found = np.zeros(len(scores), np.int64)
    starts = np.cumsum(lengths) - lengths
    for texts in _chunks(lengths, scores.shape[1]):
        words = starts[texts] + np.arange(lengths[texts[0]])[:, None]  # (L, S); texts are sorted, the longest first
        exists = np.arange(len(words))[:, None] < lengths[texts]
        n_texts = exists.sum(1)
        best, previous = _forward(scores, words, n_texts, scheme)
        found[words[exists]] = _backward(best, previous, n_texts)[exists]
    return found


def _chunks(lengths: np.ndarray, n_tags: int) -> Iterator[np.ndarray]:
    """The texts, sorted by falling length, in parts of at most CHUNK scores."""
    order = np.argsort(-lengths, kind="stable")
    order = order[: np.count_nonzero(lengths)]
    while len(order):
        size = max(1, CHUNK // (int(lengths[order[0]]) * n_tags))
        yield order[:size]
        order = order[size:]


def _forward(
    scores: np.ndarray, words: np.ndarray, n_texts: np.ndarray, scheme: TagScheme
) -> tuple[np.ndarray, np.ndarray]:
    """The largest sum up to the last word of each text, (S, C), and the tag before each tag, (L, S, C).

    n_texts (L,): the texts that have such a word.
    """
    rules = _Rules(scheme)
    best = scores[words[0]] + np.where(scheme.may_begin, 0, -np.inf)
    previous = np.zeros((*words.shape, len(scheme.mark)), np.int32)
    for step in range(1, len(words)):
        n = n_texts[step]
        before, sums = rules.predecessors(best[:n])
        previous[step, :n] = before
        best[:n] = sums + scores[words[step, :n]]
    return best + np.where(scheme.may_end, 0, -np.inf), previous


def _backward(best: np.ndarray, previous: np.ndarray, n_texts: np.ndarray) -> np.ndarray:
    """(L, S): the tags that lead to the largest sum."""
    tags = np.zeros(previous.shape[:2], np.int64)
    current = best.argmax(1)
    for step in reversed(range(len(previous))):
        n = n_texts[step]
        tags[step, :n] = current[:n]
        current[:n] = previous[step, np.arange(n), current[:n]]
    return tags


class _Rules:
    """The best predecessor of every tag, by the rules of a scheme."""

    def __init__(self, scheme: TagScheme) -> None:
        self.may_begin, self.continues, self.type = scheme.may_begin, scheme.continues, scheme.type
        self.closed = np.flatnonzero(scheme.may_end)
        n_tags, n_types = len(scheme.mark), scheme.type.max() + 1
        of_type = [np.flatnonzero(scheme.may_go_on & (scheme.type == one)) for one in range(n_types)]
        # (types, at most B and I): the tags that an entity goes on from; n_tags: none.
        self.open = np.full((n_types, max(1, *map(len, of_type))), n_tags)
        for row, tags in zip(self.open, of_type, strict=True):
            row[: len(tags)] = tags

    def predecessors(self, best: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """best (S, C) -> the best tag before each tag, and its sum, (S, C) each; -inf: none is legal."""
        texts = np.arange(len(best))
        closed = self.closed[best[:, self.closed].argmax(1)]
        padded = np.concatenate([best, np.full((len(best), 1), -np.inf)], axis=1)
        candidates = padded[:, self.open]
        which = candidates.argmax(2)
        inside = self.open[np.arange(len(self.open)), which][:, self.type].clip(max=best.shape[1] - 1)
        inside_sum = np.where(self.continues, candidates.max(2)[:, self.type], -np.inf)
        begin_sum = np.where(self.may_begin, best[texts, closed][:, None], -np.inf)
        goes_on = inside_sum > begin_sum
        return np.where(goes_on, inside, closed[:, None]), np.where(goes_on, inside_sum, begin_sum)
