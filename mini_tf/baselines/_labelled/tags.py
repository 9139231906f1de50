"""Metrics of predicted tags under the names that a model's have."""

from collections.abc import Sequence

from mini_tf.baselines._labelled.metrics import LabelledSplits
from mini_tf.scores.entities import entity_scores

TAG_METRICS = ("accuracy", "f1_macro", "entity_f1", "entity_precision", "entity_recall")


def tag_metrics(splits: LabelledSplits, predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """From one tag per word of each validation text."""
    found = entity_scores([one.labels for one in splits.val], predicted, splits.labels.names)
    return {name: found[name] for name in TAG_METRICS if name in found}
