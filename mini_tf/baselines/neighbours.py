"""Counts of a token between its two neighbours, for masked tokens.

p(w | left, right) backs off to the mean of p(w | left) and p(w | right), these to the frequency of w; each step is the
interpolation of Witten and Bell 1991 (method C). A neighbour that is masked or beyond the row's end is not used. The
accuracy is that of the most frequent token between the two, else after the left one, else of all.
"""

import numpy as np

from mini_tf.baselines import BaselineData, BaselineSettings, Measured, NoBaseline
from mini_tf.baselines._measures import TOKEN_METRICS, TokenSums, target_mask, training_ids, unigram
from mini_tf.data.batch import Batch
from mini_tf.data.tokenization.vocabulary import Vocabulary

NONE = -1
"""A neighbour that is not visible."""


class Settings(BaselineSettings):
    METRICS = TOKEN_METRICS

    def measure(self, data: BaselineData) -> Measured:
        model, sums = NeighbourModel(training_ids(data.train), data.train.vocabulary), TokenSums()
        for batch in data.batches():
            left, right = _visible_neighbours(batch, data.train.vocabulary.mask)
            labels = batch.labels.numpy()
            sums.add(np.log(model.probabilities(left, right, labels)), model.most_frequent(left, right) == labels)
        return sums.measured("counts of both neighbours", data)


class ContextCounts:
    """How often each token stands in each context (N,), an integer."""

    def __init__(self, contexts: np.ndarray, tokens: np.ndarray, vocabulary_size: int) -> None:
        self._size = vocabulary_size
        self._keys, self._counts = np.unique(contexts * vocabulary_size + tokens, return_counts=True)
        self._contexts, starts = np.unique(self._keys // vocabulary_size, return_index=True)
        self._totals, self._types = np.add.reduceat(self._counts, starts), np.diff(starts, append=len(self._keys))
        largest = np.repeat(np.maximum.reduceat(self._counts, starts), self._types)
        at = np.flatnonzero(self._counts == largest)
        self._most_frequent = self._keys[at[np.searchsorted(at, starts)]] % vocabulary_size

    def interpolated(self, contexts: np.ndarray, tokens: np.ndarray, lower: np.ndarray) -> np.ndarray:
        """(c(context, token) + n lower) / (c(context) + n), with n different tokens in the context."""
        key, (at, known) = contexts * self._size + tokens, _find(self._contexts, contexts)
        of_key, seen = _find(self._keys, key)
        counts, n = np.where(seen & known, self._counts[of_key], 0), self._types[at]
        return np.where(known, (counts + n * lower) / (self._totals[at] + n), lower)

    def most_frequent(self, contexts: np.ndarray, otherwise: np.ndarray | np.int64) -> np.ndarray:
        """The most frequent token in each context; `otherwise` where the context is unknown."""
        at, known = _find(self._contexts, contexts)
        return np.where(known, self._most_frequent[at], otherwise)


def _find(values: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An index into sorted `values` of each wanted one, and whether it is there."""
    at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return at, values[at] == wanted


class NeighbourModel:
    """p(token | left, right) from a stream of ids (N,); a neighbour may be NONE. Raises NoBaseline without data."""

    def __init__(self, ids: np.ndarray, vocabulary: Vocabulary) -> None:
        size = self._size = vocabulary.size
        self.frequencies = unigram(ids, vocabulary)
        plain = ~np.isin(ids, sorted(vocabulary.special_ids))
        plain[[0, -1]] = False
        at = np.flatnonzero(plain)
        if not len(at):
            raise NoBaseline("the training data have no token between two others")
        left, token, right = ids[at - 1], ids[at], ids[at + 1]
        self._left, self._right = ContextCounts(left, token, size), ContextCounts(right, token, size)
        self._both = ContextCounts(left * size + right, token, size)

    def probabilities(self, left: np.ndarray, right: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        lowest = self.frequencies[tokens]
        of_left, of_right = (
            counts.interpolated(side, tokens, lowest) for counts, side in ((self._left, left), (self._right, right))
        )
        one_side = np.where(left == NONE, of_right, np.where(right == NONE, of_left, (of_left + of_right) / 2))
        return self._both.interpolated(self._pairs(left, right), tokens, one_side)

    def most_frequent(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        after = self._left.most_frequent(left, self.frequencies.argmax())
        return self._both.most_frequent(self._pairs(left, right), after)

    def _pairs(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.where((left == NONE) | (right == NONE), NONE, left * self._size + right)


def _visible_neighbours(batch: Batch, mask: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The ids before and behind each target (T,), NONE where there is none to see."""
    ids, positions = batch.inputs.ids.numpy().copy(), batch.inputs.token_positions
    if mask is not None:
        ids[ids == mask] = NONE
    if positions is not None and positions.segments is not None:
        ids[positions.segments.numpy() == 0] = NONE
    edge = np.full((len(ids), 1), NONE)
    targets = target_mask(batch)
    return np.concatenate([edge, ids[:, :-1]], axis=1)[targets], np.concatenate([ids[:, 1:], edge], axis=1)[targets]
