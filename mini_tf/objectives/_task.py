"""Classification and regression with a task head: settings, batches and losses that classify, tag and regress share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows, document_batches
from mini_tf.data.store import Store
from mini_tf.data.tokenization.vocabulary import Vocabulary, word_keys, words_at
from mini_tf.nn.layers.head import NORMED, TOKEN_POOLS, Dense, DenseLayer, Pool, TaskHead, is_token, pooled, token_index
from mini_tf.nn.layers.ngram_features import LinearFeatures, WideSettings, fit_network_scale
from mini_tf.nn.layers.word_characters import WideTextSettings
from mini_tf.nn.model import Model
from mini_tf.nn.state import State
from mini_tf.objectives import LossSums, Objective, ObjectiveSettings, by_settings
from mini_tf.objectives._distillation import Distillation
from mini_tf.objectives._token_loss import tokens_of
from mini_tf.recipe.kind_settings import ModelSettings
from mini_tf.recipe.kind_settings.objectives import Addition
from mini_tf.recipe.kinds import Rule, Rules
from mini_tf.recipe.sections import Train

Loss = Callable[[Tensor, Tensor, bool], Tensor]
"""(outputs (T, C), labels (T,), training) -> the loss, summed over the T targets."""


class TaskSettings(ObjectiveSettings):
    """Settings of every objective with a task head."""

    SUPPORTS = frozenset({"bidirectional", "causal"})
    TOKENS = ("separator",)
    TRAINING_KEYS = frozenset({"token_dropout_rate"})

    dropout_rate: float = Field(0.1, ge=0, lt=1)
    """Dropout probability before the task head."""
    token_dropout_rate: float = Field(0.0, ge=0, lt=1)
    """Share of the input tokens that are replaced by the mask token in training, as regularization."""

    dense: Dense | None = None
    """A dense layer of the model's width with this activation (gelu_norm: and a norm) before the output; null: none."""
    head_bias: bool = True
    """The output layer has a bias; false as in the classifiers of Llama and GPT-2."""

    @property
    def features(self) -> WideSettings | None:
        """The linear model of n-grams beside the network, if there is one."""
        return None

    @property
    def additions(self) -> frozenset[Addition]:
        return frozenset({"features"} if self.features is not None else ())

    @by_settings
    def METRICS(self) -> tuple[str, ...]:
        return ("network_scale",) if self.features is not None and self.features.network_scale == "fit" else ()


class PooledSettings(TaskSettings):
    """Settings of objectives with one prediction per row."""

    PREDICTS = frozenset({"rows"})

    pool: Pool = "mean"
    """Pooling of the hidden states: first, last (separators) or text_end token; mean, max or attention over all."""
    wide: WideTextSettings | None = None
    """A linear model of hashed n-grams, {order, characters, rows}, is added to the outputs: wide and deep learning."""

    @property
    def features(self) -> WideSettings | None:
        return self.wide

    @property
    def pooling(self) -> Pool:
        return self.pool

    def rules_with(self, model: ModelSettings, train: Train) -> Rules:
        yield from super().rules_with(model, train)
        yield from pool_rules(self.pool, model)


def pool_rules(pool: Pool, model: ModelSettings) -> Rules:
    """Broken rules between the pooling of an objective and a model."""
    if pool == "first" and model.causal:
        yield "objective.pool", f"the first token of a {model.kind} attends only to itself; use mean or last"
    if model.per_token_setting and pool not in TOKEN_POOLS:
        yield Rule("objective.pool", f"{model.kind} with these settings has one output per row; use first", ("model",))


class TaskObjective(Objective):
    """An objective on labelled rows, with a `TaskHead` of `n_outputs` outputs."""

    def __init__(self, settings: TaskSettings, n_outputs: int, vocabulary: Vocabulary) -> None:
        super().__init__(settings)
        self.vocabulary_size, self.texts = vocabulary.size, vocabulary.texts
        self.dropout_rate, self.token_dropout_rate = settings.dropout_rate, settings.token_dropout_rate
        self.fits_network_scale = "network_scale" in settings.METRICS
        self.n_outputs, self.n_types, self.dense, self.head_bias = n_outputs, 0, settings.dense, settings.head_bias
        assert vocabulary.separator is not None
        before = (vocabulary.begin_id,) if vocabulary.template is None else vocabulary.template.before
        self.separator, self.separator_begins = vocabulary.separator, vocabulary.separator in before
        self.replacement = next(id for id in (vocabulary.mask, vocabulary.unk, self.separator) if id is not None)

    def add_modules(self, model: Model) -> None:
        head = self.head(model)
        if self.fits_network_scale:
            head.network_scale = torch.ones(())
        model.replace_head(head)
        self.n_types = model.n_types

    @torch.no_grad()
    def fit_on_validation(self, task: nn.Module, batches: Iterable[Batch]) -> Sequence[Tensor]:
        """The scale of the network's outputs beside the n-grams."""
        assert isinstance(task, TaskLoss)
        scale = task.head.network_scale
        if scale is None:
            return ()
        was_training = task.training
        task.eval()
        of_batches = [(*task.network_and_wide(batch), batch.labels) for batch in batches]
        task.train(was_training)
        network, wide, labels = (torch.cat(parts) for parts in zip(*of_batches, strict=True))
        return (scale.fill_(fit_network_scale(network, wide, lambda outputs: task.loss(outputs, labels, False))),)

    def head(self, model: Model) -> TaskHead:
        return self.head_with(model)

    def head_with(self, model: Model, wide: LinearFeatures | None = None, pools_by_attention: bool = False) -> TaskHead:
        """The head for a model; the arguments are those of `TaskHead`."""
        norm = model.settings.make_norm() if self.dense in NORMED else None
        dense = None if self.dense is None else DenseLayer(model.d_model, self.dense, norm)
        return TaskHead(
            model.d_model, self.n_outputs, self.dropout_rate, wide, pools_by_attention, dense, self.head_bias
        )

    def make_batch(self, rows: Rows, labels: Tensor, part: str, at: Tensor | None = None) -> Batch:
        """A batch with the targets `labels`: of the rows, or of the flat token positions `at`.

        part: name of the loss, for `Batch.counts`.
        """
        inputs, tokens = tokens_of(torch.from_numpy(rows.ids).long(), rows.segments)
        if self.n_types > 1:  # a separator has the type of the text that it ends
            is_end = inputs.ids.eq(self.separator).long()
            types = (is_end.cumsum(1) - is_end - int(self.separator_begins)).clamp(0, 1)
            inputs = replace(inputs, types=types)
        counts = {part: len(labels), "tokens": tokens, "penalty": tokens}
        return Batch(inputs, labels, at, extras=self._token_dropout(rows), counts=counts)

    def _token_dropout(self, rows: Rows) -> dict[str, Tensor]:
        """{"ids": input ids of training, some of them replaced}; empty without token dropout."""
        if not self.token_dropout_rate:
            return {}
        uniform = np.stack(
            [np.random.Generator(np.random.Philox(key=int(key))).random(rows.ids.shape[1]) for key in rows.keys]
        )
        dropped = (uniform < self.token_dropout_rate) & (rows.ids != self.separator)
        return {"ids": torch.from_numpy(np.where(dropped, self.replacement, rows.ids)).long()}


def keys_at(ids: Any, is_token: Any, at: Tensor, texts: Sequence[str], n_affixes: int) -> Int[Tensor, "T K"]:
    """The keys of the words that begin at the flat positions `at`, as `WordFeatures` reads them; see `words_at`."""
    keys = word_keys(words_at(ids, is_token, at, texts), n_affixes)
    return torch.tensor(keys, dtype=torch.int64).reshape(-1, 2 + 2 * n_affixes)


class PooledObjective(TaskObjective):
    """An objective with one prediction per row."""

    def __init__(self, settings: PooledSettings, n_outputs: int, vocabulary: Vocabulary) -> None:
        super().__init__(settings, n_outputs, vocabulary)
        self.pool, self.wide = settings.pool, settings.wide

    def head(self, model: Model) -> TaskHead:
        wide = None if self.wide is None else self.wide.features(self.vocabulary_size, self.texts, self.n_outputs)
        return self.head_with(model, wide, self.pool == "attention")

    def fit(self, task: nn.Module, data: Store) -> None:
        """Set what the n-grams count."""
        assert isinstance(task, TaskLoss)
        if task.head.wide is not None:
            of_class = self.classes_by_frequency
            task.head.wide.fit(partial(document_batches, data, of_class), 1 if of_class is None else len(of_class))

    @property
    def classes_by_frequency(self) -> Tensor | None:
        """(C,): the place of each class by its frequency in the training data, from 0; None: there are no classes."""
        return None


class TaskOutputs(nn.Module):
    """Outputs of a task head: one prediction per row if `pool` is given, else one per target position."""

    def __init__(self, model: Model, pool: Pool | None = None, wide: WideSettings | None = None) -> None:
        super().__init__()
        self.model, self.pool = model, pool
        self.wide = WideSettings() if wide is None else wide

    @property
    def head(self) -> TaskHead:
        assert isinstance(self.model.head, TaskHead)
        return self.model.head

    def predict(self, batch: Batch) -> Tensor:
        """(T, C): the outputs in evaluation, without the loss."""
        network, wide, _ = self._outputs(batch)
        return network if wide is None else wide + self._network_scale() * network

    def _network_scale(self) -> Tensor | float:
        scale = self.wide.network_scale
        return self.head.network_scale if scale == "fit" and self.head.network_scale is not None else float(scale)

    def _outputs(self, batch: Batch) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Outputs of the network, those of the n-grams, and the penalty of the network; None: there are none."""
        inputs = (
            replace(batch.inputs, ids=batch.extras["ids"]) if self.training and "ids" in batch.extras else batch.inputs
        )
        at = token_index(self.pool, inputs) if self.pool in TOKEN_POOLS else batch.target_positions
        mixed = self.model(inputs, None, at, None)
        hidden = mixed.y if at is not None or self.pool is None else pooled(self.pool, mixed.y, inputs, self.head.query)
        outputs = self.model.logits(hidden).float()
        if self.head.wide is None:
            return outputs, None, mixed.penalty
        ids = (batch.inputs if self.wide.own_loss else inputs).ids
        wide = self.head.wide(ids, is_token(inputs), batch.target_positions, batch.extras.get("words"))
        return outputs, wide, mixed.penalty


class TaskLoss(TaskOutputs):
    """Loss of a task head."""

    def __init__(
        self,
        model: Model,
        part: str,
        loss: Loss,
        pool: Pool | None = None,
        wide: WideSettings | None = None,
        distillation: Distillation | None = None,
    ) -> None:
        super().__init__(model, pool, wide)
        self.part, self.loss, self.distillation = part, loss, distillation

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        outputs, wide, penalty = self._outputs(batch)
        wide_loss = torch.zeros((), device=outputs.device)
        if wide is not None:
            if self.training and self.wide.own_loss:
                wide_loss = self.loss(wide, batch.labels, True)
                # Its gradient without its value, which is no part of the loss of the sum.
                wide_loss = wide_loss - wide_loss.detach()
                wide = wide.detach()
            outputs = wide + (1.0 if self.training else self._network_scale()) * outputs
        loss = self.loss(outputs, batch.labels, self.training) + wide_loss
        if self.training and self.distillation is not None:
            loss = self.distillation.of_rows(loss, outputs, batch)
        parts = {self.part: loss}
        if penalty is not None:
            parts["penalty"] = penalty
        scale, n = None if self.training else self.head.network_scale, len(outputs)
        return LossSums(
            parts, {} if scale is None else {"network_scale": (scale * n, n)}, None, None if self.training else outputs
        )

    def network_and_wide(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(T, C) each: the outputs of the network and those of the n-grams, whose sum are the task's."""
        network, wide, _ = self._outputs(batch)
        assert wide is not None
        return network, wide
