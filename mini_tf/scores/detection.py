"""The score of a detector: area under the ROC curve."""

import numpy as np


def area_under_curve(scores: np.ndarray, positive: np.ndarray) -> float | None:
    """Area under the ROC curve: the probability that a positive has a higher score than a negative, ties count half.

    scores, positive (N,). From the rank sum (Mann and Whitney 1947); None without positives or without negatives.
    """
    n_positive = int(positive.sum())
    pairs = n_positive * (len(positive) - n_positive)
    if not pairs:
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # the mean rank of equal scores, from 1
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / pairs)
