"""How near predicted numbers come to the true ones: correlation of values and of ranks, and the root of the mean squared error.

Pearson and Spearman are scipy's, which scikit-learn brings along.
"""

import warnings

import numpy as np

from mini_tf.scores import available


def number_scores(truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """pearson and spearman (-1 to 1; equal numbers share their mean rank) and rmse, in the units of the label; (N,) each.

    A correlation is NaN where one side is constant or not finite, so of a single number too. Without scikit-learn rmse alone. ValueError
    where there are none, or not as many of one as of the other.
    """
    if truth.shape != predicted.shape or truth.ndim != 1 or len(truth) == 0:
        raise ValueError(f"truth and predictions must be as many, one or more: {truth.shape}, {predicted.shape}")
    ours, theirs = predicted.astype(np.float64), truth.astype(np.float64)
    with np.errstate(all="ignore"):  # of what is not finite the figures say so themselves
        rmse = {"rmse": float(np.sqrt(np.mean((ours - theirs) ** 2)))}
    if not available("scikit-learn"):
        return rmse
    if any(not np.isfinite(side).all() or np.ptp(side) == 0 for side in (ours, theirs)):
        return {"pearson": np.nan, "spearman": np.nan, **rmse}
    from scipy.stats import pearsonr, spearmanr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that hardly differ; rounding then decides the figure
        return {"pearson": float(pearsonr(theirs, ours).statistic), "spearman": float(spearmanr(theirs, ours).statistic), **rmse}
