"""What text and token classification share: metrics and predictions by a decision rule, and how it is fitted.

It is fitted on the validation data at the end of training, with honest figures of what it changes. The validation data
are halved by the hash of each example. Figures are those of each half with the values fitted on the other one
(cross-fitting), over both halves; the values that are kept are fitted on all. Values that improve nothing in these
figures are not applied. Sources: Guo et al. 2017, arXiv:1706.04599 (temperature scaling, by the log-loss); Menon et al.
2021, arXiv:2007.07314 (logit adjustment); a bias of each class that maximises F1 is threshold moving.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from mini_tf.pipelines import PredictOptions
from mini_tf.pipelines._decision_rule import ClassAccumulator, DecisionRule, Measure, best_tags, log_loss, rescaled
from mini_tf.pipelines._prediction import PredictionPipeline
from mini_tf.run.manifest import Decision
from mini_tf.scores.entities import OUTSIDE, TagScheme, entity_f1
from mini_tf.scores.label_scores import calibration, macro_f1
from mini_tf.system.progress import show_progress
from mini_tf.system.safe_text import safe_text
from mini_tf.trained.opening import Trained

C = TypeVar("C", bound="ClassPipeline")
MIN_EXAMPLES = 10
"""With fewer examples in one half, nothing is fitted."""
MAX_LISTED = 8
"""Biases or thresholds in a message."""
CROSS_FITTED = "each half of the validation data was measured with the values fitted on the other half (val.* too)"
TEMPERATURE, BIAS = "temperature", "bias"
"""What can be fitted, of `ObjectiveSettings.additions`."""


def too_few(smallest: int) -> str:
    """Why nothing is fitted. smallest: number of examples of the smaller half."""
    return f"each half of the validation data needs {MIN_EXAMPLES} examples, and the smaller one has {smallest}"


class DecisionFitter(ClassAccumulator):
    """A metric accumulator that fits. decision: what was fitted, once `scores` is called; lines: messages about it."""

    def __init__(self, rule: DecisionRule, measure: Measure, names: Sequence[str], fits: frozenset[str]) -> None:
        super().__init__(rule, measure)
        self.names, self.fits = names, fits
        self.decision, self.lines = Decision(), list[str]()

    def scores(self) -> dict[str, float]:
        """The metrics of the cross-fitted decisions, with the loss if a temperature is of use."""
        truth, log_p, lengths = self.truth, self.log_probabilities, self.lengths
        self.decision, self.lines = Decision(), []
        smallest = int(np.bincount(self.halves, minlength=2).min())
        if smallest < MIN_EXAMPLES or not np.isfinite(log_p).all():
            why = too_few(smallest) if smallest < MIN_EXAMPLES else "some outputs are not finite"
            self.lines.append(f"nothing is fitted: {why}")
            return super().scores()
        parts = _Halves(log_p, truth, lengths, self.halves)
        with show_progress(f"fitting {' and '.join(sorted(self.fits))} on {len(lengths):,} validation examples"):
            predicted = self._bias(parts, self._temperature(parts))
        self.lines.append(CROSS_FITTED)
        scaled = {} if self.decision.temperature == 1 else {"loss": self.decision.figures["log_loss"][1]}
        return scaled | self.measure(truth, predicted, lengths)

    def _temperature(self, parts: "_Halves") -> list[float]:
        """The temperatures fitted on each half and on all data; 1 if not fitted, or of no use."""
        none = [1.0, 1.0, 1.0]
        if TEMPERATURE not in self.fits:
            return none
        fitted = [fit_temperature(parts.log_probabilities[part], parts.truth[part]) for part in parts.targets]
        crossed = parts.crossed(fitted)
        losses, errors = (
            (score(parts.log_probabilities), score(crossed))
            for score in (lambda p: log_loss(p, parts.truth), lambda p: calibration(np.exp(p), parts.truth).error)
        )
        of_use = losses[1] < losses[0]
        figures = f"log-loss {_change(losses)}, expected calibration error {_change(errors)}"
        outcome = f"temperature {fitted[2]:.3g}" if of_use else "no temperature, since it lowers no loss"
        self.lines.append(f"{outcome}: {figures}")
        changed = {"temperature": fitted[2] if of_use else 1.0, "figures": {"log_loss": losses, "ece": errors}}
        self.decision = self.decision.model_copy(update=changed)
        return fitted if of_use else none

    def _bias(self, parts: "_Halves", temperatures: list[float]) -> np.ndarray:
        """The cross-fitted decisions (N,), with biases if they are of use."""
        scheme, crossed = self.rule.scheme, parts.crossed(temperatures)
        plain = self.rule.decide(crossed, parts.lengths)
        if BIAS not in self.fits:
            return plain
        biases = [
            fit_bias(
                rescaled(parts.log_probabilities[part], temperature), parts.truth[part], parts.lengths[examples], scheme
            )
            for part, examples, temperature in zip(parts.targets, parts.examples, temperatures, strict=True)
        ]
        biased = self.rule.decide(crossed + np.stack(biases[:2])[1 - parts.half_of_target], parts.lengths)
        name, words = ("f1_macro", "macro F1") if scheme is None else ("entity_f1", "entity F1")
        scores = (self._f1(parts, plain), self._f1(parts, biased))
        of_use = scores[1] > scores[0]
        bias = {label: float(value) for label, value in zip(self.names, biases[2], strict=True) if value and of_use}
        self.lines.append(f"{describe_bias(bias) or 'no bias, since it is of no use'}: {words} {_change(scores)}")
        changed = {"bias": bias, "figures": self.decision.figures | {name: scores}}
        self.decision = self.decision.model_copy(update=changed)
        return biased if of_use else plain

    def _f1(self, parts: "_Halves", predicted: np.ndarray) -> float:
        if self.rule.scheme is None:
            return macro_f1(parts.truth, predicted, len(self.names))
        return entity_f1(*(self.rule.scheme.entities(tags, parts.lengths) for tags in (predicted, parts.truth)))


class _Halves:
    """Validation data, and its parts: half 0, half 1, all. targets, examples: masks of each part."""

    def __init__(
        self, log_probabilities: np.ndarray, truth: np.ndarray, lengths: np.ndarray, halves: np.ndarray
    ) -> None:
        self.log_probabilities, self.truth, self.lengths = log_probabilities, truth, lengths
        self.half_of_target = np.repeat(halves, lengths)
        self.targets, self.examples = (
            [half == 0, half == 1, np.ones_like(half, dtype=bool)] for half in (self.half_of_target, halves)
        )

    def crossed(self, temperatures: Sequence[float]) -> np.ndarray:
        """(N, C): each half with the temperature of the other one."""
        crossed = np.empty(self.log_probabilities.shape)
        for half in (0, 1):
            part = self.targets[half]
            crossed[part] = rescaled(self.log_probabilities[part], temperatures[1 - half])
        return crossed


def describe_bias(bias: dict[str, float]) -> str:
    """Some of the biases in words, the largest first; "" if there are none."""
    largest_first = sorted(bias.items(), key=lambda item: -abs(item[1]))
    return f"bias {listed(f'{safe_text(name)} {value:+g}' for name, value in largest_first)}" if bias else ""


def listed(items: Iterable[str]) -> str:
    """The first MAX_LISTED, and the number of the others."""
    first, others = [*islice(items := iter(items), MAX_LISTED)], len([*items])
    return ", ".join(first) + (f" and {others} more" if others else "")


def _change(scores: tuple[float, float]) -> str:
    return f"{scores[0]:.4f} -> {scores[1]:.4f}"


LARGEST_TEMPERATURE = 20.0
"""The smallest one is 1 / 20: if all classes are predicted right, no finite temperature is the best."""
HALVINGS = 50
LARGEST_BIAS, FINE_STEP, PASSES = 8, 0.25, 3
"""Biases are tried in steps of 1 nat, then of FINE_STEP around the best one; of several classes, up to PASSES times."""


def fit_temperature(log_probabilities: np.ndarray, truth: np.ndarray) -> float:
    """The temperature of the smallest log-loss, by bisection: the loss is convex in 1 / temperature."""
    low, high = -np.log(LARGEST_TEMPERATURE), np.log(LARGEST_TEMPERATURE)
    observed = log_probabilities[np.arange(len(truth)), truth].mean(dtype=np.float64)
    for _ in range(HALVINGS):
        middle = (low + high) / 2  # of log temperature
        expected = (np.exp(rescaled(log_probabilities, np.exp(middle))) * log_probabilities).sum(1).mean()
        # The derivative of the loss by 1 / temperature is expected - given: positive if the model is overconfident.
        low, high = (middle, high) if expected > observed else (low, middle)
    return float(np.exp((low + high) / 2))


def fit_bias(
    log_probabilities: np.ndarray, truth: np.ndarray, lengths: np.ndarray, scheme: TagScheme | None
) -> np.ndarray:
    """(C,): a bias of O for the largest entity F1 of tags that mark entities, else of each class for macro F1."""
    if scheme is None:
        return _class_biases(log_probabilities, truth)
    outside, true = scheme.mark == OUTSIDE, scheme.entities(truth, lengths)

    def f1(bias: float) -> float:
        return entity_f1(scheme.entities(best_tags(log_probabilities + bias * outside, lengths, scheme), lengths), true)

    return outside * _best_bias(f1) if outside.any() else np.zeros(len(outside))


def _class_biases(log_probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Coordinate ascent: the best bias of one class after the other, until none changes."""
    n_classes = log_probabilities.shape[1]
    bias = np.zeros(n_classes)
    for _ in range(PASSES):
        before = bias.copy()
        for index in range(n_classes):
            others = log_probabilities + bias
            others[:, index] = -np.inf
            other, score = others.argmax(1), others.max(1)

            def f1(value: float, index: int = index, other: np.ndarray = other, score: np.ndarray = score) -> float:
                return macro_f1(truth, np.where(log_probabilities[:, index] + value > score, index, other), n_classes)

            bias[index] = _best_bias(f1, float(bias[index]))
        if (bias == before).all():
            break
    return bias


def _best_bias(score: Callable[[float], float], start: float = 0.0) -> float:
    """The bias of the largest score, of equal ones the nearest to `start`."""

    def best(candidates: np.ndarray) -> float:
        return float(max(candidates, key=lambda value: (score(float(value)), -abs(value - start))))

    coarse = best(start + np.arange(-LARGEST_BIAS, LARGEST_BIAS + 1))
    return best(coarse + np.arange(-1 + FINE_STEP, 1, FINE_STEP))


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
        bias = np.array([fitted.bias.get(name, 0.0) for name in self.labels.names])
        return DecisionRule(self.scheme, fitted.temperature, bias)

    def average(self, outputs: Sequence[Tensor], models: Sequence[Trained]) -> Tensor:
        """The logarithm of the mean probabilities, each model's with its own temperature."""
        temperatures = [(model.decision or Decision()).temperature for model in models]
        scaled = [logits.double() / t for logits, t in zip(outputs, temperatures, strict=True)]
        log_p = torch.stack([logits.log_softmax(-1) for logits in scaled])
        return log_p.logsumexp(0).sub(math.log(len(outputs))).float()

    def with_options(self: C, options: PredictOptions) -> C:
        changed = copy(self)
        changed.top = options.top
        if options.thresholds:
            names, common = self.labels.names, options.thresholds.get(None, 0.0)
            has_own_threshold = np.array([name in options.thresholds for name in names])
            thresholds = np.array([options.thresholds.get(name, common) for name in names])
            changed.rule = replace(self.rule, thresholds=thresholds, has_own_threshold=has_own_threshold)
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
        fits = self.recipe.objective.additions - {"features"}
        return DecisionFitter(DecisionRule(self.scheme), self.measure, self.labels.names, fits) if fits else None
