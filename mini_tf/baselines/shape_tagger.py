"""Logistic regression for the tag of a word, from the word, its shape, prefixes and suffixes, and two words around it.

Tags that mark entities are decoded by the Viterbi algorithm, with the kinds of transitions that the training data have:
I-PER follows B-PER, not O. Source of the features: Ratinov and Roth 2009, section 3.1.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from mini_tf.baselines import BaselineData, BaselineSettings, Measured
from mini_tf.baselines._measures import TAG_METRICS, LabelledSplits, labelled_splits, logistic, tag_metrics
from mini_tf.data.examples import Example
from mini_tf.data.tokenization.vocabulary import shape
from mini_tf.scores.entities import iobes, mark_entities

MOST_BYTES = 5_000_000
"""Of training words times tags, and of validation words: the time grows with both."""
AFFIXES, AROUND = range(1, 5), (-2, -1, 1, 2)
ILLEGAL = -1e6
"""Added to the log-probability of a text for each transition that the training data do not have."""
BORDER = ""
"""The tag before the first word and behind the last one."""


class Settings(BaselineSettings):
    METRICS = TAG_METRICS
    REQUIRES = ("scikit-learn",)

    c: float = Field(1.0, gt=0)
    """Inverse strength of the L2 penalty."""

    def measure(self, data: BaselineData) -> Measured:
        assert data.labels is not None
        splits = labelled_splits(data, MOST_BYTES // max(1, len(data.labels.names) // 8))
        probabilities = self._probabilities(data, splits)
        borders = np.cumsum([len(example.texts) for example in splits.val])[:-1]
        with np.errstate(divide="ignore"):
            scores = np.split(np.maximum(np.log(probabilities), ILLEGAL), borders)
        names = splits.labels.names
        transitions = legal_transitions((example.labels for example in splits.train), names)
        predicted = [[names[tag] for tag in best_path(text, transitions)] for text in scores]
        return Measured("logistic tagger on word shapes", tag_metrics(splits, predicted), splits.note)

    def _probabilities(self, data: BaselineData, splits: LabelledSplits) -> np.ndarray:
        """(N, C): of each word of the validation texts."""
        from sklearn.feature_extraction.text import CountVectorizer

        def count(features: list[str]) -> list[str]:
            return features

        vectorizer: Any = CountVectorizer(analyzer=count, binary=True)
        fitted = vectorizer.fit_transform(_features(splits.train))
        measured = vectorizer.transform(_features(splits.val))
        data.check()
        ids = {name: n for n, name in enumerate(splits.labels.names)}
        tags = np.array([ids[tag] for example in splits.train for tag in example.labels])
        return logistic(fitted, tags, measured, len(ids), self.c)


def _features(examples: Iterable[Example]) -> Iterator[list[str]]:
    for example in examples:
        words, shapes = [word.lower() for word in example.texts], [shape(word) for word in example.texts]
        for n, word in enumerate(words):
            features = [f"0={word}", f"shape={shapes[n]}"]
            features += [
                f"{name}={part}" for k in AFFIXES for name, part in (("prefix", word[:k]), ("suffix", word[-k:]))
            ]
            for offset in AROUND:
                inside = 0 <= n + offset < len(words)
                features += (
                    [f"{offset}={words[n + offset]}", f"{offset}shape={shapes[n + offset]}"]
                    if inside
                    else [f"{offset}="]
                )
            yield features


def legal_transitions(tagged: Iterable[Sequence[str]], names: Sequence[str]) -> np.ndarray:
    """(C + 1, C + 1): 0 for a transition from tag to tag that has a kind of the training data, else ILLEGAL.

    The kind of a transition is both marks (B, I, O, ...), and whether both types are the same. The last row and column
    are the text's borders. All transitions are legal if the tags do not mark entities.
    """
    states = [*names, BORDER]
    if not mark_entities(names):
        return np.zeros((len(states), len(states)))
    pairs = {pair for tags in tagged for pair in zip((BORDER, *tags), (*tags, BORDER), strict=True)}
    kinds = {_kind(*pair) for pair in pairs}
    return np.array([[0.0 if _kind(before, after) in kinds else ILLEGAL for after in states] for before in states])


def _kind(before: str, after: str) -> tuple[str, str, bool]:
    before, after = iobes(before), iobes(after)
    return before[:1], after[:1], before[1:] == after[1:]


def best_path(scores: np.ndarray, transitions: np.ndarray) -> list[int]:
    """The tags (n,) with the largest sum of scores (n, C) and transitions (C + 1, C + 1), by the Viterbi algorithm."""
    total, back = scores[0] + transitions[-1, :-1], list[np.ndarray]()
    for row in scores[1:]:
        from_each = total[:, None] + transitions[:-1, :-1]
        back.append(from_each.argmax(0))
        total = from_each.max(0) + row
    path = [int((total + transitions[:-1, -1]).argmax())]
    for best in reversed(back):
        path.append(int(best[path[-1]]))
    return path[::-1]
