"""What a head says of new texts; but for rounding no prediction depends on what is predicted beside it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mini_tf.data.datasets import Dataset, Reader
from mini_tf.data.labels import Labels
from mini_tf.data.packing import Packing
from mini_tf.data.store import Store, Tokenizers, in_memory
from mini_tf.data.tokenization.input_warnings import InputWarnings
from mini_tf.pipelines import Pipeline, PipelineSettings, Prediction
from mini_tf.recipe.sections import Data
from mini_tf.system.seeds import seed_of
from mini_tf.trained.opening import Trained
from mini_tf.training.evaluation import MetricAccumulator, pack

ROWS = 32
"""Rows that the model reads at once."""


class PredictingSettings(PipelineSettings):
    """Of pipelines that answer with labels."""

    COMMAND = "predict"


class Predicting(Pipeline):
    """Answers examples with labels; a subclass says what outputs are as labels, and gathers figures of them."""

    @property
    def labels(self) -> Labels:
        assert self.subject.labels is not None
        return self.subject.labels

    def metric_accumulator(self) -> MetricAccumulator:
        raise NotImplementedError

    def predictions(self, outputs: Tensor, examples: Sequence[Any]) -> list[Prediction]:
        """From what the head gives, a row for each thing that is labelled, to a prediction for each example."""
        raise NotImplementedError

    def prediction(self, trained: Trained, judged: bool = False) -> "HeadPredictor":
        return HeadPredictor(self, trained, judged)


class HeadPredictor:
    """Predicts by the head of a trained model."""

    def __init__(self, pipeline: Predicting, trained: Trained, judged: bool) -> None:
        self._pipeline, self._trained, self._task = pipeline, trained, trained.task()
        self._dataset: Dataset = trained.recipe.objective.dataset()
        self._judge = pipeline.metric_accumulator() if judged else None
        self._n_answered = 0
        self.unread = InputWarnings(trained.tokenizer, trained.recipe.train.context, "text", "last")

    def reader(self, data: Data) -> Reader:
        return self._dataset.reader(data, labelled=self._judge is not None, labels=self._pipeline.labels)

    def predict(self, examples: Sequence[Any]) -> list[Prediction]:
        trained = self._trained
        used = Tokenizers(trained.source_tokenizer, trained.tokenizer)
        store = in_memory(self._dataset.encode(examples, used, self._pipeline.labels), used)
        packing = pack(trained.recipe, store, trained.tokenizer, trained.objective)
        found = list[Tensor]()
        with torch.no_grad(), torch.random.fork_rng(devices=[trained.setup.device] if trained.setup.device.type == "cuda" else []):
            torch.manual_seed(seed_of("evaluate"))  # a model may draw noise of its own
            for part in packing.eval_rows(ROWS):
                assert part.examples is not None
                # To the accumulator all examples are of one text, in which each has a number of its own.
                batch = trained.objective.prepare(replace(part, examples=part.examples + self._n_answered))
                with trained.setup.autocast():
                    outputs = self._task(batch.to(trained.setup.device), None).outputs
                if self._judge is not None:
                    self._judge.add(batch, outputs)
                found.append(outputs.cpu())
        self._n_answered += len(examples)
        self._count_unread(examples, store, packing)
        return self._pipeline.predictions(torch.cat(found), examples)

    def _count_unread(self, examples: Sequence[Any], store: Store, packing: Packing) -> None:
        # Where examples are cut each is one row, between two separators.
        cut = store.lengths + 2 - packing.lengths if self._dataset.CUTS else np.zeros_like(store.lengths)
        for example, length, n_cut in zip(examples, store.lengths.tolist(), cut.tolist(), strict=True):
            self.unread.add(self._dataset.texts(example), length, n_cut, example.where)

    def scores(self) -> dict[str, float]:
        """ValueError where predictions are not judged."""
        if self._judge is None:
            raise ValueError("judged: must be True for scores")
        return self._judge.scores()
