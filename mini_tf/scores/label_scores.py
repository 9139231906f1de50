"""Metrics of predicted classes, numbers and similarities, from at least one prediction.

Classes: accuracy, F1, Matthews correlation, calibration; numbers: correlation and RMSE; similarities of texts: how well
they rank pairs with a score, and how often a positive is the nearest. F1 and Matthews are scikit-learn's; Pearson and
Spearman are scipy's, which scikit-learn installs. Sources: Matthews 1975; multiclass: Gorodkin 2004; calibration: Guo
et al. 2017, arXiv:1706.04599.
"""

import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mini_tf.scores import available


class Calibration(NamedTuple):
    """Reliability diagram, (bins,) each: mean confidence and accuracy (NaN in an empty bin) and count of a bin.

    `error` is the expected calibration error (ECE): |accuracy - confidence| of a bin, averaged over all examples.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray
    error: float


def class_scores(truth: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """accuracy, f1_macro, f1_micro, f1.<class> (0-1) and matthews (-1 to 1), from class ids (N,). names: all classes.

    A negative prediction is none: it is wrong, and no class has it among its predictions.

    A class with neither labels nor predictions has no F1 and is not part of the macro mean; one without a correct
    prediction has 0. matthews is 0 if all labels or all predictions are one class. f1_micro equals accuracy if none is
    negative. Without scikit-learn: only accuracy.
    """
    scores = {"accuracy": float(np.mean(truth == predicted))}
    if not available("scikit-learn"):
        return scores
    from sklearn.metrics import f1_score

    present = np.union1d(truth, predicted[predicted >= 0])
    for average in ("macro", "micro"):
        scores[f"f1_{average}"] = float(f1_score(truth, predicted, labels=present, average=average, zero_division=0))
    by_class = f1_score(truth, predicted, labels=present, average=None, zero_division=0)
    return (
        scores
        | {"matthews": _matthews(truth, predicted)}
        | {f"f1.{names[i]}": float(f1) for i, f1 in zip(present, by_class, strict=True)}
    )


def label_set_scores(truth: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """subset_accuracy, f1_macro, f1_micro and f1.<label> (0-1), from the labels of texts (N, C), bool.

    subset_accuracy: share of the texts whose labels are all right. F1 as in `class_scores`.
    """
    scores = {"subset_accuracy": float((truth == predicted).all(1).mean())}
    if not available("scikit-learn"):
        return scores
    from sklearn.metrics import f1_score

    present = np.flatnonzero((truth | predicted).any(0)).tolist()
    by_label = [float(f1_score(truth[:, n], predicted[:, n], zero_division=0)) for n in present]
    return (
        scores
        | {"f1_macro": float(np.mean(by_label)) if by_label else 0.0}
        | {"f1_micro": float(f1_score(truth.ravel(), predicted.ravel(), zero_division=0))}
        | {f"f1.{names[n]}": f1 for n, f1 in zip(present, by_label, strict=True)}
    )


def best_cutoffs(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """(C,): the score from which on each label is predicted for its largest F1, from scores and labels (N, C).

    It is halfway to the next lower score; 0 for a label that no text has.
    """
    from sklearn.metrics import precision_recall_curve

    cutoffs = np.zeros(truth.shape[1])
    for n in np.flatnonzero(truth.any(0)):
        precision, recall, thresholds = precision_recall_curve(truth[:, n], scores[:, n])
        best = (precision * recall / np.maximum(precision + recall, 1e-12))[:-1].argmax()
        cutoffs[n] = thresholds[max(0, best - 1) : best + 1].mean()
    return cutoffs


def crossed_cutoffs(scores: np.ndarray, truth: np.ndarray, halves: np.ndarray) -> np.ndarray:
    """(N, C): for the texts of each half (N,), 0 or 1, the cutoffs that are best on the other one."""
    fitted = np.stack([best_cutoffs(scores[halves == half], truth[halves == half]) for half in (1, 0)])
    cutoffs: np.ndarray = fitted[halves]
    return cutoffs


def macro_f1(truth: np.ndarray, predicted: np.ndarray, n: int) -> float:
    """f1_macro of `class_scores`, without scikit-learn. n: number of classes."""
    counts = [np.bincount(ids, minlength=n) for ids in (truth, predicted, truth[truth == predicted])]
    present = counts[0] + counts[1]
    return float((2 * counts[2] / np.maximum(present, 1))[present > 0].mean())


def _matthews(truth: np.ndarray, predicted: np.ndarray) -> float:
    from sklearn.metrics import matthews_corrcoef

    if min(len(np.unique(truth)), len(np.unique(predicted))) < 2:
        return 0.0  # 0 / 0, for which scikit-learn prints a warning
    return float(matthews_corrcoef(truth, predicted))


def log_loss(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """Mean of -log p(true class) in nats, from probabilities (N, C) and true class ids (N,)."""
    p = probabilities[np.arange(len(truth)), truth].astype(np.float64)
    return float(-np.log(np.maximum(p, np.finfo(np.float64).tiny)).mean())


def confusion(truth: np.ndarray, predicted: np.ndarray, n: int) -> np.ndarray:
    """Confusion matrix: counts (n, n), a row per true class, a column per predicted one; negative: not counted."""
    has = predicted >= 0
    return np.bincount(truth[has].astype(np.int64) * n + predicted[has], minlength=n * n).reshape(n, n)


def calibration(probabilities: np.ndarray, truth: np.ndarray, bins: int = 10) -> Calibration:
    """Calibration from probabilities (N, C) and true class ids (N,).

    Confidence is an example's largest probability. Bins have equal width over 0 to 1 and include their upper edge.
    """
    confidence, correct = probabilities.max(axis=1).astype(np.float64), probabilities.argmax(axis=1) == truth
    bin_ids = np.searchsorted(np.arange(1, bins) / bins, confidence)
    counts = np.bincount(bin_ids, minlength=bins)
    sums = [np.bincount(bin_ids, weights=values, minlength=bins) for values in (confidence, correct)]
    mean_confidence, accuracy = (
        np.divide(total, counts, out=np.full(bins, np.nan), where=counts > 0) for total in sums
    )
    return Calibration(mean_confidence, accuracy, counts, float(np.abs(sums[0] - sums[1]).sum() / len(truth)))


def number_scores(truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """pearson and spearman (-1 to 1), and rmse (in the unit of the labels), from labels and predictions (N,).

    Ties have their mean rank. A correlation is NaN if labels or predictions are constant (N = 1 too) or not finite.
    Without scikit-learn: only rmse.
    """
    x, y = predicted.astype(np.float64), truth.astype(np.float64)
    with np.errstate(all="ignore"):  # non-finite values show in the metric
        rmse = {"rmse": float(np.sqrt(np.mean((x - y) ** 2)))}
    if not available("scikit-learn"):
        return rmse
    if any(not np.isfinite(values).all() or np.ptp(values) == 0 for values in (x, y)):
        return {"pearson": np.nan, "spearman": np.nan, **rmse}
    from scipy.stats import pearsonr, spearmanr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly constant input, where rounding decides the correlation
        return {"pearson": float(pearsonr(y, x).statistic), "spearman": float(spearmanr(y, x).statistic), **rmse}


ROWS = 1024
"""Anchors whose similarities are computed at once."""


class Contrast(NamedTuple):
    """Anchors and the candidates among which each has to find its positive. Equal numbers are equal texts.

    anchors (N,); candidates (C,): texts. owners (C,): the anchor that a candidate is the positive of; of a hard
    negative a number that no anchor has. positives (N,): the candidate that is the positive of each anchor.
    """

    anchors: np.ndarray
    candidates: np.ndarray
    owners: np.ndarray
    positives: np.ndarray

    def compared(self, anchors: slice = slice(None)) -> np.ndarray:
        """(n, C), True for the positive of an anchor and for its negatives, which are all other candidates but false
        ones: with the text of the positive, of the anchor, or of another positive of the same anchor.
        """
        texts, positives = self.anchors[anchors], self.positives[anchors]
        false = (self.candidates == texts[:, None]) | (self.candidates == self.candidates[positives][:, None])
        of_anchor: dict[int, set[int]] = {}
        for owner, text in zip(self.owners.tolist(), self.candidates.tolist(), strict=True):
            of_anchor.setdefault(owner, set()).add(text)
        for row, text in zip(false, texts.tolist(), strict=True):
            if len(of_anchor[text]) > 1:
                row |= np.isin(self.candidates, [*of_anchor[text]])
        false[np.arange(len(false)), positives] = False
        compared: np.ndarray = ~false
        return compared


def numbered(texts: Iterable[Hashable]) -> np.ndarray:
    """(T,): a number for each text, equal for equal ones."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts])


def contrast_of(texts: np.ndarray, is_anchor: np.ndarray, is_positive: np.ndarray) -> Contrast:
    """Of texts (T,) in order: each anchor, followed by its positive and its hard negatives."""
    at = np.flatnonzero(~is_anchor)
    owners = texts[is_anchor][np.cumsum(is_anchor)[at] - 1]
    return Contrast(texts[is_anchor], texts[at], np.where(is_positive[at], owners, -1), np.flatnonzero(is_positive[at]))


def retrieval_accuracy(contrast: Contrast, similarities: Callable[[slice], np.ndarray]) -> float:
    """The share of the anchors whose positive is nearer than every negative; a tie is none.

    similarities: (n, C) of some of the anchors to all candidates.
    """
    n_correct, n = 0, len(contrast.anchors)
    for first in range(0, n, ROWS):
        part = slice(first, first + ROWS)
        nearness, at = similarities(part), contrast.positives[part]
        rows = np.arange(len(nearness))
        of_positive = nearness[rows, at]
        others = np.where(contrast.compared(part), nearness, -np.inf)
        others[rows, at] = -np.inf
        n_correct += int((others.max(1) < of_positive).sum())
    return n_correct / n


def pair_scores(scores: np.ndarray, similarities: np.ndarray) -> dict[str, float]:
    """spearman (-1 to 1) of pairs (N,); without it if it is undefined, or scikit-learn is missing."""
    spearman = number_scores(scores, similarities).get("spearman", math.nan)
    return {"spearman": spearman} if math.isfinite(spearman) else {}
