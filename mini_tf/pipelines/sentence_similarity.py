"""Similarity of texts by the cosine of their vectors, which `minitf embed` writes.

spearman: rank correlation of the cosines of validation pairs with their scores. retrieval_accuracy: the share of the
validation texts whose positive is nearer than all other positives and hard negatives of the validation data, without
those that training leaves out as false negatives.
"""

import numpy as np
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.data.text_groups import ANCHOR, POSITIVE, SAME, text_keys
from mini_tf.pipelines import ModelBundle, Pipeline, PipelineSettings
from mini_tf.scores import SIMILARITY_METRICS
from mini_tf.scores.label_scores import contrast_of, numbered, pair_scores, retrieval_accuracy


class Settings(PipelineSettings):
    METRICS = SIMILARITY_METRICS
    MAIN_METRICS = SUMMARY_METRICS = ("spearman", "retrieval_accuracy")

    def build(self, bundle: ModelBundle) -> "SentenceSimilarity":
        return SentenceSimilarity(bundle)


class SentenceSimilarity(Pipeline):
    def metric_accumulator(self) -> "VectorAccumulator":
        return VectorAccumulator()


class VectorAccumulator:
    """Keeps the vectors of all texts (T, D), of length 1, their roles and scores."""

    def __init__(self) -> None:
        self._vectors, self._labels, self._keys = list[np.ndarray](), list[np.ndarray](), list[bytes]()

    def add(self, batch: Batch, outputs: Tensor) -> None:
        self._vectors.append(outputs.cpu().numpy())
        self._labels.append(batch.labels.cpu().numpy())
        self._keys += text_keys(batch.inputs)

    def scores(self) -> dict[str, float]:
        vectors, (roles, numbers) = np.concatenate(self._vectors), np.concatenate(self._labels).T
        metrics: dict[str, float] = {}
        first = np.flatnonzero(~np.isnan(numbers))
        if len(first):  # each text of such a pair stands twice
            metrics |= pair_scores(numbers[first], (vectors[first] * vectors[first + 2]).sum(1))
        alone = (roles == SAME) | np.append(roles[1:] == SAME, False)
        if not alone.all():
            roles, vectors, texts = roles[~alone], vectors[~alone], numbered(self._keys)[~alone]
            contrast = contrast_of(texts, roles == ANCHOR, roles == POSITIVE)
            anchors, candidates = vectors[roles == ANCHOR], vectors[roles != ANCHOR]
            metrics["retrieval_accuracy"] = retrieval_accuracy(contrast, lambda part: anchors[part] @ candidates.T)
        return metrics
