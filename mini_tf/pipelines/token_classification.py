"""Token classification: a tag for each word, with its probability; tags that mark entities are a legal sequence."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from torch import Tensor

from mini_tf.data.examples import Example
from mini_tf.pipelines import ModelBundle, Prediction
from mini_tf.pipelines._class_pipeline import ClassPipeline
from mini_tf.pipelines._decision_rule import NO_LABEL
from mini_tf.pipelines._prediction import PredictionPipelineSettings
from mini_tf.scores import ENTITY_METRICS, TAG_METRICS
from mini_tf.scores.entities import TagScheme, entity_scores, iobes, mark_entities


class Settings(PredictionPipelineSettings):
    METRICS = TAG_METRICS
    MAIN_METRICS = ("entity_f1", "accuracy")
    SUMMARY_METRICS = ("f1_macro", "entity_f1")
    ENSEMBLES = True
    PREDICTS_CLASSES = True
    PLOTS = {"confusion": False, "calibration": False}

    def metrics_for(self, classes: Sequence[str] | None = None) -> tuple[str, ...]:
        """Entity metrics for BIO tags, otherwise macro F1 over words."""
        excluded = () if classes is None else ("f1_macro",) if mark_entities(classes) else ENTITY_METRICS
        return tuple(name for name in self.METRICS if name not in excluded)

    def classes_of(self, metric: str, classes: Sequence[str]) -> Sequence[str]:
        if metric != "entity_f1":
            return super().classes_of(metric, classes)
        return [*dict.fromkeys(iobes(tag).partition("-")[2] or "_" for tag in classes if tag != "O")]

    def build(self, bundle: ModelBundle) -> "TokenClassification":
        return TokenClassification(bundle)


class TokenClassification(ClassPipeline):
    @cached_property
    def scheme(self) -> TagScheme | None:
        return TagScheme.of(self.labels.names, self.labels.lax) if mark_entities(self.labels.names) else None

    def measure(self, truth: np.ndarray, predicted: np.ndarray, lengths: np.ndarray) -> dict[str, float]:
        names, borders = self.labels.names, np.cumsum(lengths)[:-1]
        true = [[names[tag] for tag in text] for text in np.split(truth, borders)]
        predicted_tags = [
            [None if tag == NO_LABEL else names[tag] for tag in text] for text in np.split(predicted, borders)
        ]
        return entity_scores(true, predicted_tags, names)

    def predictions(self, outputs: Tensor, examples: Sequence[Example]) -> list[Prediction]:
        log_probabilities = self.rule.log_probabilities(outputs)
        lengths = np.array([len(example.texts) for example in examples])
        tags = self.rule.decide(log_probabilities, lengths)
        shown = np.where(tags == NO_LABEL, log_probabilities.argmax(1), tags)
        probabilities = np.exp(log_probabilities[np.arange(len(tags)), shown])
        names, ends = self.labels.names, np.cumsum(lengths)
        top = self.most_probable(log_probabilities) if self.top else None
        predictions = []
        for example, first, last in zip(examples, ends - lengths, ends, strict=True):
            of_text = [None if n == NO_LABEL else names[n] for n in tags[first:last].tolist()]
            more = {"words": example.texts} | ({} if top is None else {"top": top[first:last]})
            predictions.append(Prediction(of_text, probabilities[first:last].tolist(), more))
        return predictions
