"""Regression metrics: Pearson and Spearman correlation, root mean squared error.

Pearson and Spearman are scipy's, which comes with scikit-learn.
"""

import warnings

import numpy as np

from mini_tf.scores import available


def number_scores(truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """pearson and spearman (-1 to 1; equal numbers share their mean rank) and rmse, in the units of the label; (N,)
    each.

    A correlation is NaN if one side is constant or not finite, so for a single number too. Without scikit-learn only
    rmse. ValueError if there are none or lengths differ.
    """
    if truth.shape != predicted.shape or truth.ndim != 1 or len(truth) == 0:
        raise ValueError(f"truth and predictions must have the same length, at least 1: {truth.shape}, {predicted.shape}")
    ours, theirs = predicted.astype(np.float64), truth.astype(np.float64)
    with np.errstate(all="ignore"):  # non-finite inputs give non-finite metrics
        rmse = {"rmse": float(np.sqrt(np.mean((ours - theirs) ** 2)))}
    if not available("scikit-learn"):
        return rmse
    if any(not np.isfinite(side).all() or np.ptp(side) == 0 for side in (ours, theirs)):
        return {"pearson": np.nan, "spearman": np.nan, **rmse}
    from scipy.stats import pearsonr, spearmanr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of nearly equal numbers; rounding then decides
        return {"pearson": float(pearsonr(theirs, ours).statistic), "spearman": float(spearmanr(theirs, ours).statistic), **rmse}
