"""Predictions of a task head on new texts; except for rounding, a prediction does not depend on its batch."""

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
from mini_tf.pipelines import Pipeline, PipelineSettings, Prediction, PredictOptions
from mini_tf.recipe.sections import Data
from mini_tf.system.seeds import seed_of
from mini_tf.trained.opening import Trained
from mini_tf.training.evaluation import MetricAccumulator, pack

BATCH_SIZE = 32
"""Rows per forward pass."""


class PredictionPipelineSettings(PipelineSettings):
    COMMAND = "predict"


class PredictionPipeline(Pipeline):
    """Predicts labels; a subclass converts the outputs of the head to labels and accumulates metrics."""

    @property
    def labels(self) -> Labels:
        assert self.bundle.labels is not None
        return self.bundle.labels

    def metric_accumulator(self) -> MetricAccumulator:
        raise NotImplementedError

    def predictions(self, outputs: Tensor, examples: Sequence[Any]) -> list[Prediction]:
        """One prediction per example from the outputs of the head, which have a row for each label to predict."""
        raise NotImplementedError

    def with_options(self, options: PredictOptions) -> "PredictionPipeline":
        """This pipeline, with options that it declares to support."""
        return self

    def predictor(self, trained: Trained, labelled: bool = False, options: PredictOptions = PredictOptions()) -> "HeadPredictor":
        return HeadPredictor(self.with_options(options), trained, labelled)


class HeadPredictor:
    """Predicts with the task head of a trained model."""

    def __init__(self, pipeline: PredictionPipeline, trained: Trained, labelled: bool) -> None:
        self._pipeline, self._trained, self._task = pipeline, trained, trained.task()
        self._dataset: Dataset = trained.recipe.objective.dataset()
        self._accumulator = pipeline.metric_accumulator() if labelled else None
        self._n_predicted = 0
        self.unread = InputWarnings(trained.tokenizer, trained.recipe.train.context, "text", "last")

    def reader(self, data: Data) -> Reader:
        return self._dataset.reader(data, labelled=self._accumulator is not None, labels=self._pipeline.labels)

    def predict(self, examples: Sequence[Any]) -> list[Prediction]:
        trained = self._trained
        used = Tokenizers(trained.source_tokenizer, trained.tokenizer)
        store = in_memory(self._dataset.encode(examples, used, self._pipeline.labels), used)
        packing = pack(trained.recipe, store, trained.tokenizer, trained.objective)
        found = list[Tensor]()
        with torch.no_grad(), torch.random.fork_rng(devices=[trained.setup.device] if trained.setup.device.type == "cuda" else []):
            torch.manual_seed(seed_of("evaluate"))  # a model may draw noise
            for rows in packing.eval_rows(BATCH_SIZE):
                assert rows.examples is not None
                # The accumulator needs a unique number for each example, over all calls.
                batch = trained.objective.prepare(replace(rows, examples=rows.examples + self._n_predicted))
                with trained.setup.autocast():
                    outputs = self._task(batch.to(trained.setup.device), None).outputs
                if self._accumulator is not None:
                    self._accumulator.add(batch, outputs)
                found.append(outputs.cpu())
        self._n_predicted += len(examples)
        self._count_unread(examples, store, packing)
        return self._pipeline.predictions(torch.cat(found), examples)

    def _count_unread(self, examples: Sequence[Any], store: Store, packing: Packing) -> None:
        # Where examples are cut each is one row, between two separators.
        cut = store.lengths + 2 - packing.lengths if self._dataset.TRUNCATES else np.zeros_like(store.lengths)
        for example, length, n_cut in zip(examples, store.lengths.tolist(), cut.tolist(), strict=True):
            self.unread.add(self._dataset.texts(example), length, n_cut, example.where)

    def scores(self) -> dict[str, float]:
        """ValueError if the predictor is not `labelled`."""
        if self._accumulator is None:
            raise ValueError("labelled: must be True for scores")
        return self._accumulator.scores()
