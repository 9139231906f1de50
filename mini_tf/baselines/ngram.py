"""An n-gram language model with interpolated modified Kneser-Ney smoothing, over the model's own tokens.

The order is the best one on the end of the training data. It sees what the model sees: a history begins at the row's
first token, or at the last separator; a source is not used.
"""

import numpy as np

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.baselines._ngrams import NgramModel
from mini_tf.baselines._tokens import TOKEN_METRICS, TokenSums, target_mask, training_ids
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
