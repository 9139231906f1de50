"""What baselines of labelled examples share: examples, a model's metrics, TF-IDF features.

The weight of a feature of a text is count * (log((1 + texts) / (1 + texts with it)) + 1), each text scaled to length 1.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mini_tf.baselines import BaselineData, NoBaseline
from mini_tf.data.examples import Example, Labels
from mini_tf.scores.entities import entity_scores
from mini_tf.scores.label_scores import class_scores, number_scores

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
    scores = class_scores(truth, probabilities.argmax(1), labels.names)
    of_truth = probabilities[np.arange(len(truth)), truth]
    if (of_truth > 0).all():
        scores["loss"] = float(-np.log(of_truth).mean())
    return {name: scores[name] for name in CLASS_METRICS if name in scores}


LABEL_SET_METRICS = ("loss", "subset_accuracy", "f1_macro", "f1_micro")


def label_sets(examples: Sequence[Example], labels: Labels) -> np.ndarray:
    """(N, C), bool: the labels of each example."""
    ids = {name: n for n, name in enumerate(labels.names)}
    has_label = np.zeros((len(examples), len(ids)), bool)
    for row, example in zip(has_label, examples, strict=True):
        row[[ids[name] for name in example.labels]] = True
    return has_label


def numbers(examples: Sequence[Example]) -> np.ndarray:
    """(N,): the number of each example."""
    return np.array([float(one.labels[0]) for one in examples])


def number_metrics(truth: np.ndarray, predicted: np.ndarray, labels: Labels) -> dict[str, float]:
    """NUMBER_METRICS, the loss relative to the variance of the training data; without those that are undefined."""
    scores = {"loss": float(np.mean(((truth - predicted) / labels.scale) ** 2))} | number_scores(truth, predicted)
    return {name: value for name, value in scores.items() if math.isfinite(value)}


TAG_METRICS = ("accuracy", "f1_macro", "entity_f1", "entity_precision", "entity_recall")


def tag_metrics(splits: LabelledSplits, predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """From one tag per word of each validation text."""
    scores = entity_scores([one.labels for one in splits.val], predicted, splits.labels.names)
    return {name: scores[name] for name in TAG_METRICS if name in scores}


WORDS = r"\w+|[^\w\s]"
"""A word, or a single punctuation mark."""
MOST_WEIGHTS = 20_000_000
"""Features times classes of a linear model, at most: fitting keeps about 200 bytes for each weight."""


def words() -> Any:
    """Words and punctuation marks, and pairs of neighbours."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORDS)


def characters() -> Any:
    """2 to 5 characters within a word and its borders."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5))


def features(vectorizers: Sequence[Any], train: Sequence[Example], val: Sequence[Example]) -> tuple[Any, Any]:
    """Sparse features (N, F) of training and validation examples; each of two texts has features of its own.

    vectorizers: not fitted yet; a copy is fitted for each text. Raises NoBaseline if no text has a feature.
    """
    from scipy.sparse import hstack
    from sklearn.base import clone

    parts = []
    for n in range(len(train[0].texts)):
        texts = [[one.texts[n] for one in split] for split in (train, val)]
        for vectorizer in map(clone, vectorizers):
            try:
                parts.append((vectorizer.fit_transform(texts[0]), vectorizer.transform(texts[1])))
            except ValueError as error:  # an empty vocabulary
                raise NoBaseline(str(error)) from None
    fitted, measured = (hstack(split, format="csr") for split in zip(*parts, strict=True))
    return fitted, measured


def logistic(fitted: Any, classes: np.ndarray, measured: Any, n_classes: int, c: float) -> np.ndarray:
    """(N, C): probabilities of `measured` by multinomial logistic regression with an L2 penalty of 1 / (2 c).

    Raises NoBaseline for a single class, or more weights than MOST_WEIGHTS.
    """
    from sklearn.linear_model import LogisticRegression

    n_present, n_features = len(np.unique(classes)), fitted.shape[1]
    if n_present < 2:
        raise NoBaseline("all training labels are the same")
    if n_present * n_features > MOST_WEIGHTS:
        raise NoBaseline(f"{n_present:,} classes with {n_features:,} features are too many for a linear model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence: the number of iterations bounds the time
        model = LogisticRegression(C=c, max_iter=100, tol=1e-3).fit(fitted, classes)
    probabilities = np.zeros((measured.shape[0], n_classes))
    probabilities[:, model.classes_] = model.predict_proba(measured)
    return probabilities
