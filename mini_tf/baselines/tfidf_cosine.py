"""Cosine similarity of TF-IDF features of words and pairs of words, weighted by the training texts."""

from collections.abc import Sequence

import numpy as np

from mini_tf.baselines import BaselineData, BaselineSettings, Measured, NoBaseline
from mini_tf.baselines._measures import labelled_splits, words
from mini_tf.data.examples import Example
from mini_tf.scores import SIMILARITY_METRICS
from mini_tf.scores.label_scores import contrast_of, numbered, pair_scores, retrieval_accuracy

MOST_BYTES = 8_000_000


class Settings(BaselineSettings):
    METRICS = tuple(SIMILARITY_METRICS)
    REQUIRES = ("scikit-learn",)

    def measure(self, data: BaselineData) -> Measured:
        train, val, _, note = labelled_splits(data, MOST_BYTES)
        vectorizer = words()
        try:
            vectorizer.fit(dict.fromkeys(text for example in train for text in example.texts))
        except ValueError as error:  # an empty vocabulary
            raise NoBaseline(str(error)) from None
        data.check()
        scored = [example for example in val if example.labels]
        paired = [example for example in val if not example.labels and len(example.texts) > 1]
        metrics: dict[str, float] = {}
        if scored:
            first, second = (vectorizer.transform([example.texts[n] for example in scored]) for n in (0, 1))
            cosines = np.asarray(first.multiply(second).sum(1)).ravel()
            metrics |= pair_scores(np.array([float(example.labels[0]) for example in scored]), cosines)
        if paired:
            metrics["retrieval_accuracy"] = _retrieval_accuracy(vectorizer, paired)
        if not metrics:
            raise NoBaseline("the validation texts have neither positives nor scores")
        return Measured("TF-IDF cosine", metrics, note)


def _retrieval_accuracy(vectorizer: object, examples: Sequence[Example]) -> float:
    texts = [text for example in examples for text in example.texts]
    number = np.array([n for example in examples for n in range(len(example.texts))])
    features = vectorizer.transform(texts)  # type: ignore[attr-defined]
    anchors, candidates = features[number == 0], features[number > 0]
    contrast = contrast_of(numbered(texts), number == 0, number == 1)
    return retrieval_accuracy(contrast, lambda part: (anchors[part] @ candidates.T).toarray())
