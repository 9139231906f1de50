"""Predictions of a task head on new texts; except for rounding, a prediction does not depend on its batch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch
from mini_tf.data.datasets import Dataset, Reader
from mini_tf.data.examples import Labels
from mini_tf.data.packing import Packing
from mini_tf.data.store import Store, Tokenizers, in_memory
from mini_tf.data.tokenization.prompts import InputWarnings
from mini_tf.generation.decoding import check_finite
from mini_tf.objectives._task import TaskLoss
from mini_tf.parallel.dividing import DividedOutputs
from mini_tf.parallel.group import ProcessGroup
from mini_tf.pipelines import Pipeline, PipelineSettings, Prediction, PredictOptions
from mini_tf.recipe.sections import Data
from mini_tf.system.seeds import seed_of
from mini_tf.trained.framing import prompt_tokenizer
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

    def average(self, outputs: Sequence[Tensor], models: Sequence[Trained]) -> Tensor:
        """The outputs (T, C) of an ensemble, from those of its models; needs ENSEMBLES.

        They are to be read as the outputs of one model that has `self.labels`.
        """
        raise NotImplementedError

    def predictor(
        self, trained: Trained, labelled: bool = False, options: PredictOptions = PredictOptions()
    ) -> "HeadPredictor":
        pipeline = self.with_options(options)
        return HeadPredictor(pipeline, trained, pipeline.metric_accumulator() if labelled else None)

    def evaluate(
        self,
        trained: Trained,
        store: Store,
        accumulator: MetricAccumulator | None = None,
        group: ProcessGroup | None = None,
    ) -> dict[str, float]:
        if not trained.members:
            return super().evaluate(trained, store, accumulator, group)
        loss = OutputLoss(trained.task())
        predictor = HeadPredictor(self, trained, accumulator or self.metric_accumulator(), loss)
        predictor.evaluate(trained.recipe.objective.dataset().examples(store), group := group or ProcessGroup())
        return group.on_rank_0(lambda: {"loss": loss.mean, **predictor.scores(), "targets": float(loss.count)})


class OutputLoss:
    """The loss of outputs that no single model has: that of the task, summed over `count` targets."""

    def __init__(self, task: nn.Module) -> None:
        assert isinstance(task, TaskLoss)
        self.task, self.total, self.count = task, 0.0, 0

    def add(self, batch: Batch, outputs: Tensor) -> None:
        self.total += float(self.task.loss(outputs, batch.labels, False))
        self.count += len(batch.labels)

    @property
    def mean(self) -> float:
        return self.total / max(1, self.count)


class _Head:
    """A trained model with its task head."""

    def __init__(self, trained: Trained) -> None:
        self.trained, self.task = trained, trained.task()
        self._dataset: Dataset = trained.recipe.objective.dataset()

    def encode(self, examples: Sequence[Any], labels: Labels, as_prompts: bool = False) -> tuple[Store, Packing]:
        """as_prompts: [MASK] in a text is a mask to an encoder."""
        trained = self.trained
        tokenizer = prompt_tokenizer(trained) if as_prompts else trained.tokenizer
        used = Tokenizers(trained.source_tokenizer, tokenizer)
        store = in_memory(self._dataset.encode(examples, used, labels), used)
        return store, pack(trained.recipe, store, trained.tokenizer, trained.objective)

    def batches(self, packing: Packing, n_before: int) -> Iterator[Batch]:
        """The batches of examples. n_before: examples before these, which get unique numbers."""
        for rows in packing.eval_rows(BATCH_SIZE):
            assert rows.examples is not None
            yield self.trained.objective.prepare(replace(rows, examples=rows.examples + n_before))

    def outputs(self, packing: Packing, n_before: int) -> list[tuple[Batch, Tensor]]:
        """Each of `batches` with its outputs (T, C) on the CPU."""
        trained, computed = self.trained, list[tuple[Batch, Tensor]]()
        with (
            torch.no_grad(),
            torch.random.fork_rng(devices=[trained.setup.device] if trained.setup.device.type == "cuda" else []),
        ):
            torch.manual_seed(seed_of("evaluate"))  # a model may draw noise
            for batch in self.batches(packing, n_before):
                with trained.setup.autocast():
                    outputs = self.task(batch.to(trained.setup.device), None).outputs
                check_finite(outputs)
                computed.append((batch, outputs.cpu()))
        return computed


class HeadPredictor:
    """Predicts with the task head of a trained model, or with the mean of those of an ensemble.

    accumulator: of metrics, for examples with true labels.
    """

    def __init__(
        self,
        pipeline: PredictionPipeline,
        trained: Trained,
        accumulator: MetricAccumulator | None,
        loss: OutputLoss | None = None,
    ) -> None:
        self._pipeline, self._accumulator, self._loss = pipeline, accumulator, loss
        self._heads = [_Head(model) for model in trained.members or (trained,)]
        self._dataset: Dataset = trained.recipe.objective.dataset()
        self._n_predicted = 0
        self.unread = InputWarnings(prompt_tokenizer(trained), trained.recipe.train.context, "text", "last")

    def reader(self, data: Data) -> Reader:
        return self._dataset.reader(data, labelled=self._accumulator is not None, labels=self._pipeline.labels)

    def predict(self, examples: Sequence[Any]) -> list[Prediction]:
        encoded = [head.encode(examples, self._pipeline.labels, as_prompts=True) for head in self._heads]
        batches, outputs = self._outputs([packing for _, packing in encoded], self._n_predicted)
        self._add(batches, outputs)
        self._n_predicted += len(examples)
        self._count_unread(examples, *encoded[0])
        return self._pipeline.predictions(outputs, examples)

    def evaluate(self, examples: Iterator[Any], group: ProcessGroup) -> None:
        """Predict the examples without returning the predictions, for `scores` on rank 0 of the group."""
        divided, n_before = DividedOutputs(group, self._add), 0
        while chunk := list(islice(examples, BATCH_SIZE)):
            if divided.is_own:
                packings = [head.encode(chunk, self._pipeline.labels)[1] for head in self._heads]
                divided.append(*self._outputs(packings, n_before))
            else:
                divided.skip(partial(self._batches, chunk, n_before))
            n_before += len(chunk)
        divided.finish()

    def _batches(self, examples: Sequence[Any], n_before: int) -> list[Batch]:
        head = self._heads[0]
        return [*head.batches(head.encode(examples, self._pipeline.labels)[1], n_before)]

    def _outputs(self, packings: Sequence[Packing], n_before: int) -> tuple[list[Batch], Tensor]:
        """The batches of examples, encoded for each head, and the outputs of all batches, averaged over the heads."""
        of_heads = [head.outputs(packing, n_before) for head, packing in zip(self._heads, packings, strict=True)]
        each = [torch.cat([outputs for _, outputs in batches]) for batches in of_heads]
        outputs = each[0] if len(each) == 1 else self._pipeline.average(each, [head.trained for head in self._heads])
        return [batch for batch, _ in of_heads[0]], outputs

    def _add(self, batches: Sequence[Batch], outputs: Tensor) -> None:
        for batch, of_batch in zip(batches, outputs.split([len(batch.labels) for batch in batches]), strict=True):
            if self._accumulator is not None:
                self._accumulator.add(batch, of_batch)
            if self._loss is not None:
                self._loss.add(batch, of_batch)

    def _count_unread(self, examples: Sequence[Any], store: Store, packing: Packing) -> None:
        n_read = np.zeros(len(examples), int)
        for rows in packing.eval_rows(BATCH_SIZE):
            assert rows.examples is not None
            np.add.at(n_read, rows.examples, _is_text(store, rows.ids, rows.segments).sum(1))
        of_examples = (int(_is_text(store, store.document(n)).sum()) for n in range(len(examples)))
        cut = np.maximum(0, np.array([*of_examples]) - n_read)
        for example, length, n_cut in zip(examples, store.lengths.tolist(), cut.tolist(), strict=True):
            self.unread.add(self._dataset.texts(example), length, n_cut, example.where)

    def scores(self) -> dict[str, float]:
        """The metrics without the loss; ValueError if the predictor is not `labelled`."""
        if self._accumulator is None:
            raise ValueError("labelled: must be True for scores")
        return {name: value for name, value in self._accumulator.scores().items() if name != "loss"}


def _is_text(store: Store, ids: np.ndarray, segments: np.ndarray | None = None) -> np.ndarray:
    """Which ids are tokens of a text, unknown ones among them: not special, and no padding."""
    vocabulary = store.vocabulary
    is_text: np.ndarray = ~np.isin(ids, [*vocabulary.special_ids - {vocabulary.unk}])
    return is_text if segments is None else is_text & (segments != 0)
