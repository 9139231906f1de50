"""An objective with the smallest model that fits, and eight rows of its dataset."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.packing import Shape
from mini_tf.data.store import in_memory
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.layers.kernels import Dropout
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.model import Model, ModelSettings
from mini_tf.objectives import LossSums, Objective, ObjectiveSettings
from mini_tf.pipelines import pipeline_of
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing.rows import N_ROWS, labels_for, rows_for, vocabulary_for
from mini_tf.testing.tiny.datasets import DatasetFixture, Row
from mini_tf.training.evaluation import MetricAccumulator


@dataclass(frozen=True)
class TinyObjective:
    """An objective, its task on a model in float64 without dropout, and rows for it."""

    objective: Objective
    model: Model
    task: nn.Module
    rows: Rows
    labels: Labels | None
    model_settings: ModelSettings
    vocabulary: Vocabulary

    @property
    def metric_accumulator(self) -> MetricAccumulator | None:
        """The metric accumulator of the objective's pipeline."""
        recipe = SimpleNamespace(objective=self.objective.settings)
        return pipeline_of(SimpleNamespace(recipe=recipe, labels=self.labels, decision=None)).metric_accumulator()

    def sums(self, rows: Rows | None = None, training: bool = True) -> tuple[Batch, LossSums]:
        prepare = self.objective.prepare if training else self.objective.prepare_evaluation
        batch = prepare(self.rows if rows is None else rows)
        return batch, self.task.train(training)(batch, None)

    def loss(self, parts: Mapping[str, Tensor], counts: Mapping[str, int]) -> Tensor:
        """The loss as in training: the weighted sum of its parts, each a mean."""
        weights = self.objective.weights
        return torch.stack(
            [part * (weights.get(name, 1.0) / max(counts[name], 1)) for name, part in parts.items()]
        ).sum()

    @torch.no_grad()
    def predictions(self, rows: Rows, training: bool) -> tuple[Batch, Tensor | None]:
        """The batch, and the hidden states (T, D) from which a model of the task predicts its targets; None without."""
        all_hidden = list[Tensor]()

        def kept(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
            def call(hidden: Tensor, *more: Any, **named: Any) -> Tensor:
                all_hidden.append(hidden)
                return method(hidden, *more, **named)

            return call

        def keep_targets(model: nn.Module, inputs: object, output: ForwardOutput) -> None:
            at_targets.append(output.y.flatten(0, -2))

        at_targets = list[Tensor]()
        models = [module for module in self.task.modules() if isinstance(module, Model)]
        hooks = [model.register_forward_hook(keep_targets) for model in models]
        for model in models:
            model.logits, model.cross_entropy = kept(model.logits), kept(model.cross_entropy)  # type: ignore[method-assign]
        try:
            batch, _ = self.sums(rows, training)
        finally:
            for model in models:
                del model.logits, model.cross_entropy
            for hook in hooks:
                hook.remove()
        # A loss in several parts takes the hidden states of some of the targets at a time.
        all_hidden += at_targets
        fitting = (hidden for hidden in all_hidden if hidden.dim() == 2 and len(hidden) == len(batch.labels))
        return batch, next(fitting, None)

    def cut(self, size: int) -> list[Rows]:
        return [self.rows.slice(first, min(first + size, N_ROWS)) for first in range(0, N_ROWS, size)]


@dataclass(frozen=True)
class Given:
    """An objective with rows of its dataset (see `testing.datasets`): at least eight, of different lengths."""

    settings: ObjectiveSettings
    rows: Sequence[Row]

    def prepared(self, lookahead: int = 0) -> tuple[Rows, Labels | None, Vocabulary]:
        with TemporaryDirectory() as folder:
            fixture = DatasetFixture(self.settings.dataset(), self.rows, Path(folder))
            store = in_memory(fixture.dataset.encode(fixture.examples, fixture.used, fixture.labels), fixture.used)
            packing, numbers = fixture.dataset.packing(store, Shape(64, lookahead, "none")), np.arange(N_ROWS)
            return packing.take(numbers, 0, numbers.astype(np.uint64)), fixture.labels, fixture.used.target.vocabulary


Tried = ObjectiveSettings | Given
"""An objective on synthetic rows, or on given rows."""


def tiny_objective(tried: Tried, d_model: int = 16, dropout: float = 0.0) -> TinyObjective:
    """The objective with a model; `dropout` is set in every dropout layer."""
    settings = tried.settings if isinstance(tried, Given) else tried
    if isinstance(tried, Given):
        rows, labels, vocabulary = tried.prepared()
        objective = settings.build(vocabulary, labels)
        rows = tried.prepared(objective.lookahead)[0] if objective.lookahead else rows
    else:
        labels, vocabulary = labels_for(settings.DATASET), vocabulary_for(settings.TOKENS.count("sentinel"))
        objective = settings.build(vocabulary, labels)
        rows = rows_for(
            settings.DATASET,
            objective.lookahead,
            objective.needs_word_starts,
            sentences=objective.needs_sentence_starts,
        )
    torch.manual_seed(0)
    models: list[Any] = [settings_of("models", word) for word in listing("models")]
    fitting = [one for one in models if settings.direction(one)]
    seeing_most = next(
        (one for one in fitting if "bidirectional" in one.DIRECTIONS), fitting[0]
    )  # so that every position can be predicted
    model_settings = seeing_most(d_model=d_model, n_layers=1, n_heads=2, init_std=0.3)
    model: Model = model_settings.build(vocabulary.size, max(16, rows.ids.shape[1]))
    objective.add_modules(model)
    task = objective.task(model).double()
    for module in task.modules():
        if isinstance(module, Dropout):
            module.rate = dropout
        elif isinstance(module, nn.Dropout):
            module.p = dropout
    return TinyObjective(objective, model, task, rows, labels, model_settings, vocabulary)
