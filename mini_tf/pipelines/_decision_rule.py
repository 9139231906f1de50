"""From the outputs of a head over classes to labels: one function for `predict`, `evaluate` and validation.

A label is the class of the largest log-probability, after temperature scaling and with a bias per class; of tags that
mark entities, the legal sequence of the largest sum, by Viterbi's algorithm for all texts at once: time O(words * C),
not C^2, since the rules (`scores.entities`) only tell whether an entity may begin or go on. Probabilities are those of
temperature scaling alone. Sources: Viterbi 1967; Guo et al. 2017, arXiv:1706.04599 (temperature); Menon et al. 2021,
arXiv:2007.07314 (bias: logit adjustment).
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.scores.entities import TagScheme
from mini_tf.training.evaluation import ClassProbabilities

NO_LABEL = -1
_FIRST = 1e4
"""A score above all log-probabilities of a sentence's words, in nats."""

Measure = Callable[[np.ndarray, np.ndarray, np.ndarray], dict[str, float]]
"""(true class ids (N,), predicted ones (N,), targets of each example) -> metrics by name."""


@dataclass(frozen=True, eq=False)
class DecisionRule:
    """How labels follow from outputs. scheme: of tags that mark entities, else None. bias (C,) or 0: in nats.

    thresholds (C,): the probability below which a class is no label. has_own_threshold (C,): classes that are predicted
    before all others where their probability reaches it, and after all others elsewhere.
    """

    scheme: TagScheme | None = None
    temperature: float = 1.0
    bias: np.ndarray | float = 0.0
    thresholds: np.ndarray | None = None
    has_own_threshold: np.ndarray | bool = False

    def log_probabilities(self, outputs: Tensor) -> np.ndarray:
        """(T, C): of logits (T, C), or of any log-probabilities."""
        log_p: np.ndarray = (outputs.float() / self.temperature).log_softmax(-1).cpu().numpy()
        return log_p

    def decide(self, log_probabilities: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """(T,): the class of each target, or NO_LABEL. lengths: targets of each example, in order."""
        scores = log_probabilities + self.bias
        if self.thresholds is not None:
            reached = log_probabilities >= np.log(np.maximum(self.thresholds, 1e-300))
            scores = np.where(
                self.has_own_threshold, np.where(reached, log_probabilities + _FIRST, scores - _FIRST), scores
            )
        decided = scores.argmax(1) if self.scheme is None else best_tags(scores, lengths, self.scheme)
        if self.thresholds is None:
            return decided
        return np.where(reached[np.arange(len(decided)), decided], decided, NO_LABEL)


class ClassAccumulator(ClassProbabilities):
    """Accumulates true classes and log-probabilities of all targets. An example may have several rows and targets."""

    def __init__(self, rule: DecisionRule, measure: Measure) -> None:
        self.rule, self.measure = rule, measure
        self._truth, self._log_probabilities = list[np.ndarray](), list[np.ndarray]()
        self._lengths, self._halves = list[int](), list[int]()
        self._example: int | None = None

    def add(self, batch: Batch, outputs: Tensor) -> None:
        self._truth.append(batch.labels.cpu().numpy())
        self._log_probabilities.append(self.rule.log_probabilities(outputs))
        rows, length = batch.inputs.ids.shape
        targets, at = np.ones(rows, np.int64), batch.target_positions
        if at is not None:
            targets = np.bincount((at // length).cpu().numpy(), minlength=rows)
        examples = batch.extras["examples"].tolist() if "examples" in batch.extras else [None] * rows
        for example, n_targets, half in zip(examples, targets.tolist(), row_halves(batch), strict=True):
            if example is None or example != self._example:  # else it continues the example of the row before
                self._lengths.append(0)
                self._halves.append(half)
            self._lengths[-1] += n_targets
            self._example = example

    @property
    def truth(self) -> np.ndarray:
        return np.concatenate(self._truth)

    @property
    def log_probabilities(self) -> np.ndarray:
        return np.concatenate(self._log_probabilities)

    @property
    def probabilities(self) -> np.ndarray:
        probabilities: np.ndarray = np.exp(self.log_probabilities)
        return probabilities

    @property
    def unscaled(self) -> np.ndarray | None:
        if self.rule.temperature == 1:
            return None
        probabilities: np.ndarray = np.exp(rescaled(self.log_probabilities, 1 / self.rule.temperature))
        return probabilities

    @property
    def lengths(self) -> np.ndarray:
        """(E,): targets of each example."""
        return np.array(self._lengths)

    @property
    def halves(self) -> np.ndarray:
        """(E,): 0 or 1 by the hash of each example (of a long one, of its first row)."""
        return np.array(self._halves)

    @property
    def predicted(self) -> np.ndarray:
        return self.rule.decide(self.log_probabilities, self.lengths)

    def scores(self) -> dict[str, float]:
        """With the loss of the scaled probabilities where there is a temperature."""
        scaled = {} if self.rule.temperature == 1 else {"loss": log_loss(self.log_probabilities, self.truth)}
        return scaled | self.measure(self.truth, self.predicted, self.lengths)


def row_halves(batch: Batch) -> list[int]:
    """0 or 1 for each row, by the hash of its token ids without padding."""
    ids, positions = batch.inputs.ids.cpu().numpy().astype(np.int64), batch.inputs.token_positions
    real = np.ones_like(ids, dtype=bool)
    if positions is not None and positions.segments is not None:
        real = positions.segments.cpu().numpy() != 0
    return [
        hashlib.blake2b(row[is_real].tobytes(), digest_size=1).digest()[0] & 1
        for row, is_real in zip(ids, real, strict=True)
    ]


def rescaled(log_probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """(N, C), float64: log-probabilities with another temperature, the same as from logits."""
    scaled = log_probabilities.astype(np.float64) / temperature
    scaled -= scaled.max(1, keepdims=True)
    log_p: np.ndarray = scaled - np.log(np.exp(scaled).sum(1, keepdims=True))
    return log_p


def log_loss(log_probabilities: np.ndarray, truth: np.ndarray) -> float:
    """Mean of -log p(true class), in nats."""
    return float(-log_probabilities[np.arange(len(truth)), truth].mean())


CHUNK = 1 << 22
"""Largest number of scores of the texts that are decoded at once, with padding."""


def best_tags(scores: np.ndarray, lengths: np.ndarray, scheme: TagScheme) -> np.ndarray:
    """(N,): for each text the legal tags with the largest sum of scores. scores (N, C): finite, of all words in order.

    lengths (S,): words of each text. At equal scores the tags are deterministic.
    """
    tags = np.zeros(len(scores), np.int64)
    starts = np.cumsum(lengths) - lengths
    for texts in _chunks(lengths, scores.shape[1]):
        words = starts[texts] + np.arange(lengths[texts[0]])[:, None]  # (L, S); texts are sorted, the longest first
        exists = np.arange(len(words))[:, None] < lengths[texts]
        n_texts = exists.sum(1)
        best, previous = _forward(scores, words, n_texts, scheme)
        tags[words[exists]] = _backward(best, previous, n_texts)[exists]
    return tags


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
        of_type = [np.flatnonzero(scheme.may_go_on & (scheme.type == number)) for number in range(n_types)]
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
