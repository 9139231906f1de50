"""How often the right class is chosen: accuracy, F1, Matthews; which are taken for which; whether confidence can be believed.

F1 and Matthews are scikit-learn's. Sources: Matthews 1975, for several classes Gorodkin 2004; Guo et al. 2017, arXiv:1706.04599.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mini_tf.scores import available


class Calibration(NamedTuple):
    """Of each bin of confidences, (bins,) each: their mean, the share that was right (both NaN in an empty bin), and how many they are.

    `error` is the expected calibration error: the mean over all texts of how far confidence and accuracy of their bin lie apart.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray
    error: float


def class_scores(truth: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """accuracy, f1_macro, f1_micro and f1.<class> (0-1), and matthews (-1 to 1), from class numbers (N,) each; `names` of all classes.

    A class that neither side has has no F1, and is left out of the macro mean (scikit-learn's with `labels` those of either side); one
    that is never right has 0. matthews is 0 where one side is all of one class. Where every text has one class, f1_micro is the
    accuracy. Without scikit-learn accuracy alone.
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
    """How often each of `n` classes (rows) is taken for each (columns): counts (n, n)."""
    _must_match(truth, predicted)
    return np.bincount(truth.astype(np.int64) * n + predicted, minlength=n * n).reshape(n, n)


def calibration(probabilities: np.ndarray, truth: np.ndarray, bins: int = 10) -> Calibration:
    """From probabilities (N, C) and the true classes (N,): a text's confidence is the probability of its likeliest class.

    Bins are equally wide, over 0 to 1, and own their upper edge.
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
        raise ValueError(f"truth and predictions must be as many: {len(truth)} != {len(predicted)}")
    if len(truth) == 0:
        raise ValueError("there must be a prediction")
