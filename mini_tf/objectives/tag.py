"""Tagging: a tag for every word, at its first token. Source: Devlin et al. 2018, arXiv:1810.04805, section 5.3."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.labels import Labels
from mini_tf.data.tokenization.tokenizer import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.objectives._answering import Answering, ClassSettings, Task, classified
from mini_tf.scores import OF_TAGS
from mini_tf.scores.entities import entity_scores

PART = "tag"


class Settings(ClassSettings):
    DATASET = "tags"
    METRICS = OF_TAGS

    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Tag":
        assert labels is not None
        return Tag(self, vocabulary, labels)


class Tag(Task):
    def __init__(self, settings: Settings, vocabulary: Vocabulary, labels: Labels) -> None:
        super().__init__(settings, len(labels.names), vocabulary)
        self.labels = labels
        self.loss = classified(settings.weights(labels), settings.label_smoothing)

    def prepare(self, rows: Rows) -> Batch:
        assert rows.labels is not None
        labels = torch.from_numpy(rows.labels).flatten()
        at = (~labels.isnan()).nonzero().squeeze(1)
        batch = self.ask(rows, labels[at].long(), PART, at)
        return batch if rows.examples is None else replace(batch, draws=batch.draws | {"examples": torch.from_numpy(rows.examples)})

    def task(self, model: Model) -> nn.Module:
        return Answering(model, PART, self.loss)

    def judge(self) -> "Tags":
        return Tags(self.labels)


class Tags:
    """The tags that were named, beside those that are right, sentence by sentence.

    One that is longer than the context comes as several rows, one behind the other, of the same example.
    """

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._truth, self._given = list[list[str]](), list[list[str]]()
        self._example: int | None = None

    def add(self, batch: Batch, answers: Tensor) -> None:
        assert batch.at is not None
        rows, length = batch.inputs.ids.shape
        borders = np.cumsum(np.bincount((batch.at // length).cpu().numpy(), minlength=rows))[:-1]
        truth, given = (np.split(tags.cpu().numpy(), borders) for tags in (batch.labels, answers.argmax(-1)))
        examples = batch.draws["examples"].tolist() if "examples" in batch.draws else [None] * rows
        for example, *row in zip(examples, truth, given, strict=True):
            for sentences, tags in zip((self._truth, self._given), row, strict=True):
                if example is None or example != self._example:
                    sentences.append([])
                sentences[-1] += [self.labels.names[tag] for tag in tags.tolist()]
            self._example = example

    def scores(self) -> dict[str, float]:
        return entity_scores(self._truth, self._given, self.labels.names)
