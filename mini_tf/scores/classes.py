"""Classification metrics: accuracy, F1, Matthews correlation; confusion matrix; calibration.

F1 and Matthews are scikit-learn's. Sources: Matthews 1975, for several classes Gorodkin 2004; Guo et al. 2017,
arXiv:1706.04599.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mini_tf.scores import available


class Calibration(NamedTuple):
    """Per confidence bin, (bins,) each: mean confidence, accuracy (both NaN in an empty bin), and number of texts.

    error: the expected calibration error (ECE), the mean over all texts of |confidence - accuracy| of their bin.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray
    error: float


def class_scores(truth: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """accuracy, f1_macro, f1_micro and f1.<class> (0-1), and matthews (-1 to 1), from class numbers (N,); names: all
    classes.

    A class that occurs neither in truth nor in predictions has no F1 and is left out of the macro mean; one that is
    never right has 0. matthews is 0 if truth or predictions have one class only. With one class per text f1_micro is
    the accuracy. Without scikit-learn only accuracy.
    """
    _must_match(truth, predicted)
    scores = {"accuracy": float(np.mean(truth == predicted))}
    if not available("scikit-learn"):
        return scores
    from sklearn.metrics import f1_score

    present = np.union1d(truth, predicted)
    for average in ("macro", "micro"):
        scores[f"f1_{average}"] = float(f1_score(truth, predicted, labels=present, average=average, zero_division=0))
    by_class = f1_score(truth, predicted, labels=present, average=None, zero_division=0)
    return (
        scores | {"matthews": _matthews(truth, predicted)} | {f"f1.{names[i]}": float(f1) for i, f1 in zip(present, by_class, strict=True)}
    )


def _matthews(truth: np.ndarray, predicted: np.ndarray) -> float:
    from sklearn.metrics import matthews_corrcoef

    if min(len(np.unique(truth)), len(np.unique(predicted))) < 2:
        return 0.0  # 0 / 0, of which scikit-learn warns
    return float(matthews_corrcoef(truth, predicted))


def confusion(truth: np.ndarray, predicted: np.ndarray, n: int) -> np.ndarray:
    """The confusion matrix (n, n) of `n` classes: rows are true classes, columns predicted ones."""
    _must_match(truth, predicted)
    return np.bincount(truth.astype(np.int64) * n + predicted, minlength=n * n).reshape(n, n)


def calibration(probabilities: np.ndarray, truth: np.ndarray, bins: int = 10) -> Calibration:
    """Calibration from probabilities (N, C) and true classes (N,); confidence is the largest probability.

    Bins are equally wide, over 0 to 1, and include their upper edge.
    """
    _must_match(truth, probabilities)
    confidence, right = probabilities.max(axis=1).astype(np.float64), probabilities.argmax(axis=1) == truth
    which = np.searchsorted(np.arange(1, bins) / bins, confidence)
    counts = np.bincount(which, minlength=bins)
    sums = [np.bincount(which, weights=values, minlength=bins) for values in (confidence, right)]
    mean_confidence, accuracy = (np.divide(total, counts, out=np.full(bins, np.nan), where=counts > 0) for total in sums)
    return Calibration(mean_confidence, accuracy, counts, float(np.abs(sums[0] - sums[1]).sum() / len(truth)))


def _must_match(truth: np.ndarray, predicted: np.ndarray) -> None:
    if len(truth) != len(predicted):
        raise ValueError(f"truth and predictions must have the same length: {len(truth)} != {len(predicted)}")
    if len(truth) == 0:
        raise ValueError("there must be a prediction")
