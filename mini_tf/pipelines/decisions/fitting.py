"""Temperature and biases of a decision rule, fitted on held-out data.

Sources: Guo et al. 2017, arXiv:1706.04599 (temperature scaling, by the log-loss); Menon et al. 2021, arXiv:2007.07314
(logit adjustment); a bias of each class that maximises F1 is threshold moving.
"""

from collections.abc import Callable

import numpy as np

from mini_tf.pipelines.decisions.tag_decoding import best_tags
from mini_tf.scores.entities import OUTSIDE, TagScheme, entity_f1
from mini_tf.scores.label_scores import macro_f1

LARGEST_TEMPERATURE = 20.0
"""The smallest one is 1 / 20: if all classes are predicted right, no finite temperature is the best."""
HALVINGS = 50
LARGEST_BIAS, FINE_STEP, PASSES = 8, 0.25, 3
"""Biases are tried in steps of 1 nat, then of FINE_STEP around the best one; of several classes, up to PASSES times."""


def rescaled(log_probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """(N, C), float64: log-probabilities with another temperature, the same as from logits."""
    scaled = log_probabilities.astype(np.float64) / temperature
    scaled -= scaled.max(1, keepdims=True)
    found: np.ndarray = scaled - np.log(np.exp(scaled).sum(1, keepdims=True))
    return found


def log_loss(log_probabilities: np.ndarray, truth: np.ndarray) -> float:
    """Mean of -log p(true class), in nats."""
    return float(-log_probabilities[np.arange(len(truth)), truth].mean())


def fit_temperature(log_probabilities: np.ndarray, truth: np.ndarray) -> float:
    """The temperature of the smallest log-loss, by bisection: the loss is convex in 1 / temperature."""
    low, high = -np.log(LARGEST_TEMPERATURE), np.log(LARGEST_TEMPERATURE)
    given = log_probabilities[np.arange(len(truth)), truth].mean(dtype=np.float64)
    for _ in range(HALVINGS):
        middle = (low + high) / 2  # of log temperature
        expected = (np.exp(rescaled(log_probabilities, np.exp(middle))) * log_probabilities).sum(1).mean()
        # The derivative of the loss by 1 / temperature is expected - given: positive if the model is overconfident.
        low, high = (middle, high) if expected > given else (low, middle)
    return float(np.exp((low + high) / 2))


def fit_bias(
    log_probabilities: np.ndarray, truth: np.ndarray, lengths: np.ndarray, scheme: TagScheme | None
) -> np.ndarray:
    """(C,): a bias of O for the largest entity F1 of tags that mark entities, else of each class for macro F1."""
    if scheme is None:
        return _class_biases(log_probabilities, truth)
    outside, true = scheme.mark == OUTSIDE, scheme.entities(truth, lengths)

    def f1(bias: float) -> float:
        return entity_f1(scheme.entities(best_tags(log_probabilities + bias * outside, lengths, scheme), lengths), true)

    return outside * _best_bias(f1) if outside.any() else np.zeros(len(outside))


def _class_biases(log_probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Coordinate ascent: the best bias of one class after the other, until none changes."""
    n_classes = log_probabilities.shape[1]
    bias = np.zeros(n_classes)
    for _ in range(PASSES):
        before = bias.copy()
        for one in range(n_classes):
            others = log_probabilities + bias
            others[:, one] = -np.inf
            other, score = others.argmax(1), others.max(1)

            def f1(value: float, one: int = one, other: np.ndarray = other, score: np.ndarray = score) -> float:
                return macro_f1(truth, np.where(log_probabilities[:, one] + value > score, one, other), n_classes)

            found = _best_bias(f1, float(bias[one]))
            bias[one] = found if f1(found) > f1(float(bias[one])) else bias[one]
        if (bias == before).all():
            break
    return bias


def _best_bias(score: Callable[[float], float], start: float = 0.0) -> float:
    """The bias of the largest score, of equal ones the nearest to `start`."""

    def best(candidates: np.ndarray) -> float:
        return float(max(candidates, key=lambda value: (score(float(value)), -abs(value - start))))

    coarse = best(start + np.arange(-LARGEST_BIAS, LARGEST_BIAS + 1))
    return best(coarse + np.arange(-1 + FINE_STEP, 1, FINE_STEP))
