"""Replaced token detection: [MASK] is filled by the run's generator; an evaluation has the discriminator's AUC."""

import numpy as np
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.nn.model import Model
from mini_tf.objectives import Task
from mini_tf.pipelines import ModelBundle
from mini_tf.pipelines._mask_filling import MaskFilling, MaskFillingSettings
from mini_tf.trained.opening import Trained


class Settings(MaskFillingSettings):
    DESCRIPTION = "fills each [MASK] of a prompt with its generator"
    METRICS = {"auc": ()}
    SUMMARY_METRICS = ("auc", "generator_accuracy")

    def build(self, bundle: ModelBundle) -> "ReplacedTokenDetection":
        return ReplacedTokenDetection(bundle)


class ReplacedTokenDetection(MaskFilling):
    def token_predictor(self) -> Model:
        assert isinstance(self.bundle, Trained)
        task = self.bundle.task()
        assert isinstance(task, Task)
        return task.token_predictor()

    def metric_accumulator(self) -> "Discrimination":
        return Discrimination()


class Discrimination:
    """Collects the score of each token and whether it was replaced: the outputs (T, 2) of the task."""

    def __init__(self) -> None:
        self._outputs: list[np.ndarray] = []

    def add(self, batch: Batch, outputs: Tensor) -> None:
        self._outputs.append(outputs.float().cpu().numpy())

    def scores(self) -> dict[str, float]:
        """auc: of replaced against original tokens; {} if there are none of either."""
        scores, replaced = np.concatenate(self._outputs, dtype=np.float64).T if self._outputs else np.empty((2, 0))
        auc = area_under_curve(scores, replaced > 0.5)
        return {} if auc is None else {"auc": auc}


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
