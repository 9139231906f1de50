"""What baselines share: metrics of tokens, of texts made of the sources, and of labelled examples with TF-IDF features.

The weight of a feature of a text is count * (log((1 + texts) / (1 + texts with it)) + 1), each text scaled to length 1.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mini_tf.baselines import BaselineData, Measured, NoBaseline
from mini_tf.data.batch import Batch
from mini_tf.data.examples import Example, Labels
from mini_tf.data.store import Store
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.scores import TEXT_METRICS, can_measure
from mini_tf.scores.entities import entity_scores
from mini_tf.scores.label_scores import class_scores, number_scores
from mini_tf.scores.text_scores import count_words, text_scores
from mini_tf.system.seeds import seed_of

TOKEN_METRICS = ("loss", "perplexity", "bits_per_byte", "accuracy")
MOST_TOKENS = 5_000_000
"""Training tokens that are counted, at most."""
BLOCKS = 64
"""Blocks of consecutive tokens, evenly spaced, that are counted of more."""


class TokenSums:
    """Sums over all targets: log-probabilities in nats, and correct predictions."""

    def __init__(self) -> None:
        self.nats, self.n_correct, self.n = 0.0, 0, 0

    def add(self, log_p: np.ndarray, correct: np.ndarray) -> None:
        self.nats -= float(log_p.sum())
        self.n_correct += int(correct.sum())
        self.n += len(log_p)

    def measured(self, name: str, data: BaselineData) -> Measured:
        loss = self.nats / max(1, self.n)
        metrics = {"loss": loss, "perplexity": math.exp(min(loss, 700)), "accuracy": self.n_correct / max(1, self.n)}
        if data.every_token:
            metrics["bits_per_byte"] = self.nats / math.log(2) / data.val.bytes_of(self.n)
        total, counted = data.train.n_tokens, min(len(data.train), MOST_TOKENS)
        return Measured(name, metrics, f"from {counted:,} of {total:,} training tokens" if counted < total else "")


def training_ids(store: Store) -> np.ndarray:
    """(N,) int64: the ids of a split, or evenly spaced blocks of MOST_TOKENS ids."""
    n, size = len(store), MOST_TOKENS // BLOCKS
    firsts = [0] if n <= MOST_TOKENS else [block * (n - size) // (BLOCKS - 1) for block in range(BLOCKS)]
    length = n if n <= MOST_TOKENS else size
    return np.concatenate([np.asarray(store.ids[first : first + length], np.int64) for first in firsts])


def unigram(ids: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """(V,): the frequency of each token, special ones not counted, with one added to each count (Laplace)."""
    counts = np.bincount(ids, minlength=vocabulary.size)
    counts[sorted(vocabulary.special_ids)] = 0  # which are never targets of masking
    frequencies: np.ndarray = (counts + 1) / (counts.sum() + vocabulary.size)
    return frequencies


def target_mask(batch: Batch) -> np.ndarray:
    """(B, L): True at the positions of the inputs that have a target."""
    mask = np.zeros(batch.inputs.ids.shape, bool)
    mask.reshape(-1)[slice(None) if batch.target_positions is None else batch.target_positions.numpy()] = True
    return mask


REFERENCE_METRICS = tuple(TEXT_METRICS)
MOST_WORK = 30_000_000
"""Of words of the texts times words of the references, as ROUGE-L's time; with more, a random part is scored."""


def text_measured(name: str, data: BaselineData, write: Callable[[str], str]) -> Measured:
    """Measure the texts that `write` makes of the sources of the validation examples."""
    if not can_measure(TEXT_METRICS):
        raise NoBaseline("neither rouge-score nor sacrebleu is installed")
    examples = map(data.dataset.source_and_references, data.examples(data.val.store))
    texts = [(write(source), references) for source, references in examples]
    work = sum(count_words(text) * sum(map(count_words, references)) for text, references in texts)
    chosen = np.random.default_rng(seed_of("baseline")).random(len(texts)) < MOST_WORK / max(1, work)
    scored = [pair for pair, used in zip(texts, chosen, strict=True) if used] or texts[:1]
    note = f"on {len(scored):,} of {len(texts):,} validation examples" if len(scored) < len(texts) else ""
    data.check()
    return Measured(name, text_scores(scored), note)


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
    return np.array([ids[example.labels[0]] for example in examples])


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
    return np.array([float(example.labels[0]) for example in examples])


def number_metrics(truth: np.ndarray, predicted: np.ndarray, labels: Labels) -> dict[str, float]:
    """NUMBER_METRICS, the loss relative to the variance of the training data; without those that are undefined."""
    scores = {"loss": float(np.mean(((truth - predicted) / labels.scale) ** 2))} | number_scores(truth, predicted)
    return {name: value for name, value in scores.items() if math.isfinite(value)}


TAG_METRICS = ("accuracy", "f1_macro", "entity_f1", "entity_precision", "entity_recall")


def tag_metrics(splits: LabelledSplits, predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """From one tag per word of each validation text."""
    scores = entity_scores([example.labels for example in splits.val], predicted, splits.labels.names)
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
        texts = [[example.texts[n] for example in split] for split in (train, val)]
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


def logistic_measured(name: str, data: BaselineData, most_bytes: int, vectorizers: Sequence[Any], c: float) -> Measured:
    """Measure logistic regression of the class on these features, fitted to about `most_bytes` of text."""
    train, val, labels, note = labelled_splits(data, most_bytes)
    fitted, measured = features(vectorizers, train, val)
    data.check()
    probabilities = logistic(fitted, class_ids(train, labels), measured, len(labels.names), c)
    return Measured(f"{name} + logistic regression", class_metrics(class_ids(val, labels), probabilities, labels), note)
