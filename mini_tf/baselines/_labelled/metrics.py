"""Examples with labels as arrays, and the metrics of predicted labels under the names that a model's have."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mini_tf.baselines import BaselineData, NoBaseline
from mini_tf.data.examples import Example, Labels
from mini_tf.scores.classes import class_scores
from mini_tf.scores.numbers import number_scores

CLASS_METRICS = ("loss", "accuracy", "f1_macro", "f1_micro", "matthews")
NUMBER_METRICS = ("loss", "pearson", "spearman", "rmse")


class LabelledSplits(NamedTuple):
    """The examples of both splits. note: how many training examples there are, if not all."""

    train: list[Example]
    val: list[Example]
    labels: Labels
    note: str


def labelled_splits(data: BaselineData, most_bytes: int) -> LabelledSplits:
    """A random part of about `most_bytes` of the training examples, and all validation examples.

    Raises NoBaseline if the validation texts have more than that.
    """
    assert data.labels is not None
    if data.val.store.raw_bytes > most_bytes:
        raise NoBaseline(f"the validation texts have more than {most_bytes / 1e6:g} MB")
    train, total = list(data.examples(data.train, most_bytes)), data.train.n_documents
    if not train:
        raise NoBaseline("there are no training texts")
    note = f"from {len(train):,} of {total:,} training examples" if len(train) < total else ""
    return LabelledSplits(train, list(data.examples(data.val.store)), data.labels, note)


def class_ids(examples: Sequence[Example], labels: Labels) -> np.ndarray:
    """(N,): the class of each example."""
    ids = {name: n for n, name in enumerate(labels.names)}
    return np.array([ids[one.labels[0]] for one in examples])


def class_metrics(truth: np.ndarray, probabilities: np.ndarray, labels: Labels) -> dict[str, float]:
    """CLASS_METRICS from true classes (N,) and probabilities (N, C); no loss if a true class has probability 0."""
    found = class_scores(truth, probabilities.argmax(1), labels.names)
    of_truth = probabilities[np.arange(len(truth)), truth]
    if (of_truth > 0).all():
        found["loss"] = float(-np.log(of_truth).mean())
    return {name: found[name] for name in CLASS_METRICS if name in found}


def numbers(examples: Sequence[Example]) -> np.ndarray:
    """(N,): the number of each example."""
    return np.array([float(one.labels[0]) for one in examples])


def number_metrics(truth: np.ndarray, predicted: np.ndarray, labels: Labels) -> dict[str, float]:
    """NUMBER_METRICS, the loss relative to the variance of the training data; without those that are undefined."""
    found = {"loss": float(np.mean(((truth - predicted) / labels.scale) ** 2))} | number_scores(truth, predicted)
    return {name: value for name, value in found.items() if math.isfinite(value)}
