"""Logistic regression of each label on TF-IDF features of words and pairs of words, with fitted thresholds."""

import warnings

import numpy as np
from pydantic import Field

from mini_tf.baselines import BaselineData, BaselineSettings, Measured, NoBaseline
from mini_tf.baselines._measures import (
    LABEL_SET_METRICS,
    MOST_WEIGHTS,
    features,
    label_sets,
    labelled_splits,
    words,
)
from mini_tf.scores.label_scores import crossed_cutoffs, label_set_scores

MOST_BYTES = 8_000_000
LEAST, FEWEST = 1e-6, 20
"""Smallest probability of a label, and of its absence; with fewer validation examples the threshold is 0.5."""


class Settings(BaselineSettings):
    METRICS = LABEL_SET_METRICS
    REQUIRES = ("scikit-learn",)

    c: float = Field(10.0, gt=0)
    """Inverse strength of the L2 penalty."""

    def measure(self, data: BaselineData) -> Measured:
        """Each half of the validation data has the thresholds that are best on the other one."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.multiclass import OneVsRestClassifier

        train, val, labels, note = labelled_splits(data, MOST_BYTES)
        fitted, measured = features([words()], train, val)
        if len(labels.names) * fitted.shape[1] > MOST_WEIGHTS:
            size = f"{len(labels.names):,} labels with {fitted.shape[1]:,} features"
            raise NoBaseline(f"{size} are too many for linear models")
        data.check()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of convergence, and of labels that all or no training texts have
            model = OneVsRestClassifier(LogisticRegression(C=self.c, max_iter=100, tol=1e-3))
            p = model.fit(fitted, label_sets(train, labels).astype(int)).predict_proba(measured)
        p, truth = np.clip(p, LEAST, 1 - LEAST), label_sets(val, labels)
        logits = np.log(p) - np.log1p(-p)
        halves = np.arange(len(val)) % 2
        predicted = logits >= (crossed_cutoffs(logits, truth, halves) if len(val) >= FEWEST else 0)
        scores = label_set_scores(truth, predicted, labels.names)
        scores["loss"] = float(-np.where(truth, np.log(p), np.log1p(-p)).mean())
        metrics = {name: scores[name] for name in LABEL_SET_METRICS if name in scores}
        return Measured("TF-IDF of words + logistic regression of each label", metrics, note)
