"""Metrics of regression: Pearson and Spearman correlation, root mean squared error.

Pearson and Spearman are scipy's, which scikit-learn installs.
"""

import warnings

import numpy as np

from mini_tf.scores import available


def number_scores(truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """pearson and spearman (-1 to 1), and rmse (in the unit of the labels), from labels and predictions (N,).

    Ties have their mean rank. A correlation is NaN if labels or predictions are constant (N = 1 too) or not finite.
    Without scikit-learn: only rmse. Raises ValueError if there are no numbers or the lengths differ.
    """
    if truth.shape != predicted.shape or truth.ndim != 1 or len(truth) == 0:
        raise ValueError(
            f"labels and predictions must have the same length, at least 1: {truth.shape}, {predicted.shape}"
        )
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
