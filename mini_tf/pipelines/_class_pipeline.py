"""What text and token classification share: metrics and predictions by a decision rule."""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from mini_tf.pipelines import PredictOptions
from mini_tf.pipelines._decision_fitting import DecisionFitter
from mini_tf.pipelines._decision_rule import ClassAccumulator, DecisionRule
from mini_tf.pipelines._prediction import PredictionPipeline
from mini_tf.run.manifest import Decision
from mini_tf.scores.entities import TagScheme
from mini_tf.trained.opening import Trained


class ClassPipeline(PredictionPipeline):
    """Predicts classes. top: also give so many of the most probable classes."""

    top: int | None = None

    @property
    def scheme(self) -> TagScheme | None:
        """The rules of the sequence of classes; None: each target is decided by itself."""
        return None

    def measure(self, truth: np.ndarray, predicted: np.ndarray, lengths: np.ndarray) -> dict[str, float]:
        """Metrics from class ids (N,); lengths: targets of each example."""
        raise NotImplementedError

    @cached_property
    def rule(self) -> DecisionRule:
        """That of the bundle's model: with the temperature and biases fitted for it."""
        fitted = self.bundle.decision or Decision()
        return DecisionRule(
            self.scheme, fitted.temperature, np.array([fitted.bias.get(name, 0.0) for name in self.labels.names])
        )

    def average(self, outputs: Sequence[Tensor], models: Sequence[Trained]) -> Tensor:
        """The logarithm of the mean probabilities, each model's with its own temperature."""
        scaled = [
            one.double() / (Decision() if m.decision is None else m.decision).temperature
            for one, m in zip(outputs, models, strict=True)
        ]
        return torch.stack([one.log_softmax(-1) for one in scaled]).logsumexp(0).sub(math.log(len(outputs))).float()

    def with_options(self, options: PredictOptions) -> Self:
        changed = copy(self)
        changed.top = options.top
        if options.thresholds:
            names, common = self.labels.names, options.thresholds.get(None, 0.0)
            own = np.array([name in options.thresholds for name in names])
            thresholds = np.array([options.thresholds.get(name, common) for name in names])
            changed.rule = replace(self.rule, thresholds=thresholds, own=own)
        return changed

    def most_probable(self, log_probabilities: np.ndarray) -> list[list[dict[str, Any]]]:
        """The `top` most probable classes of each target, in order."""
        order = np.argsort(-log_probabilities, axis=1, kind="stable")[:, : self.top]
        probabilities = np.exp(np.take_along_axis(log_probabilities, order, 1))
        return [
            [{"label": self.labels.names[n], "score": p} for n, p in zip(*row, strict=True)]
            for row in zip(order.tolist(), probabilities.tolist(), strict=True)
        ]

    def metric_accumulator(self) -> ClassAccumulator:
        return ClassAccumulator(self.rule, self.measure)

    def decision_fitter(self) -> DecisionFitter | None:
        fits = self.recipe.objective.fitted_after_training
        return DecisionFitter(DecisionRule(self.scheme), self.measure, self.labels.names, fits) if fits else None
