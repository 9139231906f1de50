"""All labels of a text whose probability reaches their threshold, and the probabilities of all labels.

Thresholds are fitted on the validation data after training, for the largest F1 of each label, and measured as in
`_class_pipeline`: each half of the data with those of the other half. A run keeps them as biases of the logits.
"""

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.pipelines import ModelBundle, Prediction, PredictOptions
from mini_tf.pipelines._class_pipeline import CROSS_FITTED, MIN_EXAMPLES, listed, too_few
from mini_tf.pipelines._decision_rule import row_halves
from mini_tf.pipelines._prediction import PredictionPipeline, PredictionPipelineSettings
from mini_tf.run.manifest import Decision
from mini_tf.scores import LABEL_SET_METRICS, available
from mini_tf.scores.label_scores import best_cutoffs, crossed_cutoffs, label_set_scores
from mini_tf.system.safe_text import safe_text
from mini_tf.trained.opening import Trained


class Settings(PredictionPipelineSettings):
    METRICS = LABEL_SET_METRICS
    MAIN_METRICS = ("f1_micro", "subset_accuracy")
    SUMMARY_METRICS = ("f1_micro", "f1_macro")
    ENSEMBLES = True
    PREDICTS_CLASSES = True

    def build(self, bundle: ModelBundle) -> "MultiLabelClassification":
        return MultiLabelClassification(bundle)


class MultiLabelClassification(PredictionPipeline):
    """top: also give so many of the most probable labels."""

    top: int | None = None

    @cached_property
    def cutoffs(self) -> np.ndarray:
        """(C,): the logit from which on each label is predicted."""
        threshold = self.recipe.objective.model_dump()["threshold"]
        common = 0.0 if threshold == "fit" else float(_logits(threshold))
        fitted = self.bundle.decision or Decision()
        return np.array([-fitted.bias.get(name, -common) for name in self.labels.names])

    def with_options(self, options: PredictOptions) -> "MultiLabelClassification":
        changed = copy(self)
        changed.top = options.top
        thresholds = [options.thresholds.get(name, options.thresholds.get(None)) for name in self.labels.names]
        changed.cutoffs = np.array(
            [cutoff if p is None else _logits(p) for p, cutoff in zip(thresholds, self.cutoffs, strict=True)]
        )
        return changed

    def metric_accumulator(self) -> "LabelSetAccumulator":
        return LabelSetAccumulator(self.cutoffs, self.labels.names)

    def decision_fitter(self) -> "ThresholdFitter | None":
        if "bias" not in self.recipe.objective.additions:
            return None
        return ThresholdFitter(np.zeros(len(self.labels.names)), self.labels.names)

    def predictions(self, outputs: Tensor, examples: Sequence[Any]) -> list[Prediction]:
        names, predicted = self.labels.names, outputs.cpu().numpy() >= self.cutoffs
        made = []
        for row, p in zip(predicted, outputs.sigmoid().tolist(), strict=True):
            ranked = sorted(zip(names, p, strict=True), key=lambda pair: -pair[1])[: self.top]
            more = {"top": [{"label": name, "score": score} for name, score in ranked]} if self.top else {}
            made.append(Prediction([names[n] for n in np.flatnonzero(row)], dict(zip(names, p, strict=True)), more))
        return made

    def average(self, outputs: Sequence[Tensor], models: Sequence[Trained]) -> Tensor:
        """The logits of the mean probabilities."""
        return torch.stack([each.double().sigmoid() for each in outputs]).mean(0).logit().float()


class LabelSetAccumulator:
    """Accumulates the labels of texts and their logits. cutoffs (C,): logits from which on labels are predicted."""

    def __init__(self, cutoffs: np.ndarray, names: Sequence[str]) -> None:
        self.cutoffs, self.names = cutoffs, names
        self._truth, self._logits, self._halves = list[np.ndarray](), list[np.ndarray](), list[int]()

    def add(self, batch: Batch, outputs: Tensor) -> None:
        self._truth.append(batch.labels.cpu().numpy() > 0.5)
        self._logits.append(outputs.float().cpu().numpy())
        self._halves += row_halves(batch)

    def scores(self) -> dict[str, float]:
        logits = np.concatenate(self._logits)
        return label_set_scores(np.concatenate(self._truth), logits >= self.cutoffs, self.names)


class ThresholdFitter(LabelSetAccumulator):
    """A metric accumulator that fits thresholds. decision, lines: of the last call of `scores`."""

    decision, lines = Decision(), list[str]()

    def scores(self) -> dict[str, float]:
        """The metrics with cross-fitted thresholds, if they improve the macro F1."""
        self.decision, plain = Decision(), super().scores()
        truth, logits, halves = np.concatenate(self._truth), np.concatenate(self._logits), np.array(self._halves)
        smallest = int(np.bincount(halves, minlength=2).min())
        if smallest < MIN_EXAMPLES or not available("scikit-learn") or not np.isfinite(logits).all():
            others = "some outputs are not finite, or scikit-learn is not installed"
            why = too_few(smallest) if smallest < MIN_EXAMPLES else others
            self.lines = [f"no thresholds are fitted: {why}"]
            return plain
        crossed = label_set_scores(truth, logits >= crossed_cutoffs(logits, truth, halves), self.names)
        figures = (plain["f1_macro"], crossed["f1_macro"])
        of_use = figures[1] > figures[0]
        cutoffs = best_cutoffs(logits, truth)
        bias = {name: -float(cutoff) for name, cutoff in zip(self.names, cutoffs, strict=True) if cutoff and of_use}
        self.decision = Decision(bias=bias, figures={"f1_macro": figures})
        thresholds = listed(f"{safe_text(name)} {1 / (1 + np.exp(value)):.2f}" for name, value in bias.items())
        outcome = f"thresholds {thresholds}" if of_use else "no fitted thresholds, since they are of no use"
        self.lines = [f"{outcome}: macro F1 {figures[0]:.4f} -> {figures[1]:.4f}", CROSS_FITTED]
        return crossed if of_use else plain


def _logits(p: float) -> np.ndarray:
    """Of a probability, 0 and 1 included."""
    with np.errstate(divide="ignore"):
        return np.log(p) - np.log1p(-p)  # type: ignore[no-any-return]
