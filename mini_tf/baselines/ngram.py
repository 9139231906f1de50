"""An n-gram language model with interpolated modified Kneser-Ney smoothing, over the model's own tokens.

The order is the best one on the end of the training data. It sees what the model sees: a history begins at the row's
first token, or at the last separator; a source is not used.

p(w | h) = (c(h w) - d) / c(h) + b(h) p(w | h without its first token), down to the uniform distribution over the
vocabulary; d depends on c(h w) = 1, 2, 3 or more, and b(h) makes the probabilities sum to 1. The longest n-grams count
occurrences, shorter ones the number of different tokens before them. Sources: Kneser and Ney 1995; the discounts: Chen
and Goodman 1998, TR-10-98, section 3. Counts are sorted arrays: n-gram i of order k is `keys[i]` = (id of its first k -
1 tokens among the n-grams of order k - 1) * vocabulary size + its last token.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.baselines._measures import TOKEN_METRICS, TokenSums, target_mask, training_ids
from mini_tf.data.batch import Batch

SHORT_TOKENS = 1024
"""Vocabularies up to this size have characters or bytes, of which longer n-grams are useful."""
CHOICE_TOKENS, CHOICE_ROW = 1_000_000, 256
"""Training tokens with which the order is chosen, and tokens of a row of the tenth on which it is chosen."""


class Settings(BaselineSettings):
    METRICS = TOKEN_METRICS

    max_order: int | None = None
    """Largest order; default 8 for characters and bytes, 5 for longer tokens."""

    def measure(self, data: BaselineData) -> Measured:
        vocabulary = data.train.vocabulary
        ids = training_ids(data.train)
        largest = self.max_order or (8 if vocabulary.size <= SHORT_TOKENS else 5)
        order = _best_order(ids, vocabulary.size, vocabulary.separator, largest)
        data.check()
        model, sums = NgramModel(ids, vocabulary.size, order), TokenSums()
        for batch in data.batches():
            sequences, targets = _sequences(batch)
            scored = model.score(sequences, _histories(sequences, vocabulary.separator))
            sums.add(scored.log_p[targets], scored.correct[targets])
        return sums.measured(f"{order}-gram model (Kneser-Ney)", data)


def _best_order(ids: np.ndarray, vocabulary_size: int, separator: int | None, largest: int) -> int:
    """The order with the lowest loss on the last tenth of the ids (or of a part), by counts of the rest."""
    ids = ids[-CHOICE_TOKENS:]
    n = len(ids) // 10
    row = min(CHOICE_ROW, n)
    if row < 2:
        return min(largest, 2)
    held_out = ids[len(ids) - n // row * row :].reshape(-1, row)
    model, histories = NgramModel(ids[: len(ids) - n], vocabulary_size, largest), _histories(held_out, separator)
    losses = [-model.score(held_out, histories, order).log_p.sum() for order in range(1, len(model.orders) + 1)]
    return int(np.argmin(losses)) + 1


def _sequences(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """(B, L + 1): the inputs, and behind each its target; True at the targets."""
    inputs, targets = batch.inputs.ids.numpy(), target_mask(batch)
    sequences = np.concatenate([inputs, inputs[:, -1:]], axis=1)
    sequences[:, 1:][targets] = batch.labels.numpy()
    return sequences, np.concatenate([np.zeros((len(targets), 1), bool), targets], axis=1)


def _histories(sequences: np.ndarray, separator: int | None) -> np.ndarray:
    """The number of tokens before each one (B, L) in its row, back to the last separator, which is one of them."""
    index = np.broadcast_to(np.arange(sequences.shape[1]), sequences.shape)
    opens = np.where(sequences == (-1 if separator is None else separator), index, 0)
    last = np.maximum.accumulate(opens, axis=1)
    before = np.concatenate([last[:, :1], last[:, :-1]], axis=1)
    histories: np.ndarray = index - before
    return histories


MIN_DISCOUNT = 0.05
"""Discounts are at least this large, so that every token has a probability."""


class Smoothed(NamedTuple):
    """The model of one order. p (n,): of each n-gram, given its history. backoff (n_histories,): b(h).

    best, best_p (n_histories,): the most probable token after each history, and its probability.
    """

    p: np.ndarray
    backoff: np.ndarray
    best: np.ndarray
    best_p: np.ndarray


@dataclass(frozen=True, eq=False)
class Order:
    """The n-grams of one order.

    top: with counts of occurrences, if no longer n-grams are used; inner: with counts of different tokens before them.
    """

    keys: np.ndarray
    top: Smoothed
    inner: Smoothed


class _Counted(NamedTuple):
    """suffixes (n,): ids of the n-grams without their first token, among those one shorter."""

    keys: np.ndarray
    suffixes: np.ndarray
    counts: np.ndarray


class Scored(NamedTuple):
    """Of each target: log p in nats, and whether it is the most probable token."""

    log_p: np.ndarray
    correct: np.ndarray


class NgramModel:
    """An n-gram model of every order up to `max_order`, of one stream of ids (N,)."""

    def __init__(self, ids: np.ndarray, vocabulary_size: int, max_order: int) -> None:
        self.vocabulary_size = vocabulary_size
        self.orders = _smoothed(_count(ids, vocabulary_size, max_order), vocabulary_size)

    def score(self, ids: np.ndarray, histories: np.ndarray, order: int | None = None) -> Scored:
        """Score every token of rows ids (B, L) after at most `histories` (B, L) tokens before it in its row.

        order: of the model, default the largest. The tokens that score are any that the caller selects.
        """
        levels = self.orders[:order]
        longest = np.minimum(histories, len(levels) - 1)
        before = np.zeros(ids.shape, np.int64)  # id of the history of each token: the empty one, then one token, ...
        p, best = np.full(ids.shape, 1.0 / self.vocabulary_size), np.zeros(ids.shape, np.int64)
        for n, level in enumerate(levels):  # n: tokens of the history
            usable = (longest >= n) & (before >= 0)
            indices = np.full(ids.shape, -1)
            indices[usable] = _find(level.keys, before[usable] * self.vocabulary_size + ids[usable])
            for smoothed, mask in ((level.top, usable & (longest == n)), (level.inner, usable & (longest > n))):
                at, history = indices[mask], before[mask]
                p[mask] = np.where(at >= 0, smoothed.p[at], smoothed.backoff[history] * p[mask])
                best[mask] = smoothed.best[history]
            before = np.concatenate([np.full((len(ids), 1), -1), indices[:, :-1]], axis=1)
        return Scored(np.log(p), best == ids)


def _find(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The index of each wanted key, -1 where it is not among the sorted `keys`."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, at, -1)


def _count(ids: np.ndarray, vocabulary_size: int, max_order: int) -> list[_Counted]:
    orders = list[_Counted]()
    ends = np.zeros(
        len(ids), np.int64
    )  # of each position: the id of the n-gram that ends before it, here the empty one
    below, first = np.zeros(len(ids) + 1, np.int32), 0
    for _ in range(min(max_order, len(ids))):
        keys, index, inverse, counts = np.unique(
            ends * vocabulary_size + ids[first:], return_index=True, return_inverse=True, return_counts=True
        )
        orders.append(_Counted(keys, below[index + 1], counts))
        # Of positions first, first + 1, ...: the n-gram that ends there; it is the history of the next position.
        below, ends, first = inverse.astype(np.int32), inverse[:-1], first + 1
    return orders


def _smoothed(counted: list[_Counted], vocabulary_size: int) -> list[Order]:
    """The orders, from the shortest n-grams to the longest. Empties `counted`, since these arrays may be large."""
    orders = list[Order]()
    lower: Smoothed | None = None
    histories = np.zeros(1, np.int64)  # of each history of this order: the id without its first token
    while counted:
        order = counted.pop(0)
        longer = counted[0].suffixes if counted else None
        different = order.counts if longer is None else np.maximum(np.bincount(longer, minlength=len(order.keys)), 1)
        top, inner = (_smooth(order, counts, lower, histories, vocabulary_size) for counts in (order.counts, different))
        orders.append(Order(order.keys, top, inner))
        lower, histories = inner, order.suffixes
    return orders


def _smooth(
    counted: _Counted, counts: np.ndarray, lower: Smoothed | None, histories: np.ndarray, vocabulary_size: int
) -> Smoothed:
    history, tokens = counted.keys // vocabulary_size, counted.keys % vocabulary_size
    discounts = _discounts(counts)[np.minimum(counts, 3)]
    totals = np.bincount(history, counts, len(histories))
    backoff = np.bincount(history, discounts, len(histories))
    backoff = np.divide(backoff, totals, out=np.ones(len(histories)), where=totals > 0)  # a history may end the text
    below = np.full(len(counts), 1.0 / vocabulary_size) if lower is None else lower.p[counted.suffixes]
    p = (counts - discounts) / totals[history] + backoff[history] * below
    best = np.zeros(len(histories), np.int64) if lower is None else lower.best[histories]
    best_p = backoff * (1.0 / vocabulary_size if lower is None else lower.best_p[histories])
    starts = np.flatnonzero(np.diff(history, prepend=-1))
    largest = np.zeros(len(histories))
    largest[history[starts]] = np.maximum.reduceat(p, starts)
    at = np.flatnonzero(p == largest[history])[::-1]  # the first of equal ones is written last
    most = np.zeros(len(histories), np.int64)
    most[history[at]] = tokens[at]
    seen = largest >= best_p
    return Smoothed(p, backoff, np.where(seen, most, best), np.where(seen, largest, best_p))


def _discounts(counts: np.ndarray) -> np.ndarray:
    """(4,): the discount of a count of 0, 1, 2, and 3 or more."""
    n1, n2, n3, n4 = np.bincount(np.minimum(counts, 5), minlength=5)[1:5].tolist()
    if not (n1 and n2):
        return np.array([0.0, 0.5, 0.5, 0.5])
    y = n1 / (n1 + 2 * n2)
    discounts = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2 if n3 else y, 3 - 4 * y * n4 / n3 if n3 and n4 else y]
    return np.array(
        [0.0, *(min(max(discount, MIN_DISCOUNT), float(count)) for count, discount in enumerate(discounts, start=1))]
    )
