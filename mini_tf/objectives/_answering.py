"""What objectives with a task head share: settings, batches, classification of rows and tokens."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, WrapValidator
from pydantic_core import PydanticCustomError
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.labels import Labels
from mini_tf.data.tokenization.tokenizer import Vocabulary
from mini_tf.nn.layers.task_head import Pool, TaskHead, pooled, token_index
from mini_tf.nn.model import Model
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import SMOOTHED, Objective, ObjectiveSettings, Sums
from mini_tf.recipe.data import NonEmptyText
from mini_tf.recipe.kind_settings import ModelSettings
from mini_tf.recipe.kinds import Rule, Rules, settings_of
from mini_tf.recipe.values import near, show
from mini_tf.system.errors import RecipeFault

Loss = Callable[[Tensor, Tensor, bool], Tensor]
"""(outputs, labels, training) -> summed loss."""
LARGEST_WEIGHT = 1e9
HIDDEN = {"token_dropout_rate": "hidden tokens"}


def _fitting_weights(value: Any, either: Any) -> Any:
    """Checks class weights; names the alternatives in the error."""
    if value is None or value == "balanced":
        return either(value)
    if not isinstance(value, dict):
        meant = "; did you mean balanced?" if isinstance(value, str) and near(value, ["balanced"]) else ""
        raise PydanticCustomError("value", "{m}", {"m": f"must be balanced or {{class: weight}}, got {show(value)}{meant}"})
    for name, weight in value.items():
        if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 < weight <= LARGEST_WEIGHT:
            told = f"the weight of a class must be above 0 and at most {LARGEST_WEIGHT:g}, got {show(weight)} for {show(name)}"
            raise PydanticCustomError("value", "{m}", {"m": told})
    return either(value)


ClassWeights = Annotated[Literal["balanced"] | dict[str, float] | None, WrapValidator(_fitting_weights)]


def _no_such_class(name: str, names: Sequence[str]) -> str:
    meant = near(name, names)
    there = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"no such class {show(name)}; {f'did you mean {meant}?' if meant else f'there are {there}'}"


class TaskSettings(ObjectiveSettings):
    """Settings of all objectives with a task head."""

    DIRECTIONS = frozenset({"bidirectional", "causal"})
    TOKENS = ("separator",)
    UNLIKE = HIDDEN

    dropout_rate: float = Field(0.1, ge=0, lt=1)
    """Dropout probability before the task head, in training."""
    token_dropout_rate: float = Field(0.0, ge=0, lt=1)
    """Probability that a token is replaced by the mask token, in training."""


class PooledSettings(TaskSettings):
    """Settings of tasks with one prediction per row."""

    pool: Pool = "mean"
    """The vector of a text: its first token (the separator), its last one, the mean or the maximum of its tokens."""

    def rules_with(self, model: ModelSettings) -> Rules:
        if self.pool == "first" and model.causal:
            yield "objective.pool", f"the first token of a {model.kind} attends to no other token; use mean or last"


class ClassSettings(TaskSettings):
    """Settings of tasks that predict classes."""

    UNLIKE = SMOOTHED | {"class_weights": "class weights"} | HIDDEN

    labels: Annotated[tuple[NonEmptyText, ...], Field(min_length=2, max_length=65536)] | None = None
    """Names of the classes, in this order; null: those of the training split."""
    class_weights: ClassWeights = None
    """Weight of a class in the training loss: balanced (inverse frequency), or {name: weight}."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Label smoothing, in training: the share of each label's weight that is spread evenly over the classes."""

    def rules(self) -> Rules:
        if self.labels and len(set(self.labels)) < len(self.labels):
            yield "labels", "a class is listed twice"
        if self.labels is not None and (strange := self._without_class(self.labels)):
            yield Rule("class_weights", _no_such_class(strange[0], self.labels), ("labels",))

    @property
    def classes(self) -> Sequence[str] | None:
        return self.labels

    def dataset(self) -> Any:
        found = settings_of("data.datasets", self.DATASET)
        return found.model_validate({"labels": self.labels} if "labels" in found.model_fields else {})

    def _without_class(self, names: Sequence[str]) -> list[str]:
        """A class weight for a class that does not exist."""
        return [name for name in self.class_weights if name not in names] if isinstance(self.class_weights, dict) else []

    def weights(self, labels: Labels) -> Tensor | None:
        """Class weights (C,), with mean 1 over the training split; None if all are equal.

        RecipeFault for a weight of a class that does not exist.
        """
        if self.class_weights is None:
            return None
        counts = torch.tensor(labels.counts, dtype=torch.float64)
        if isinstance(self.class_weights, dict):
            if strange := self._without_class(labels.names):
                raise RecipeFault(f"objective.class_weights: {_no_such_class(strange[0], labels.names)}")
            weights = torch.tensor([self.class_weights.get(name, 1.0) for name in labels.names], dtype=torch.float64)
        else:
            weights = 1.0 / counts.clamp(min=1)
        return (weights * counts.sum() / (weights * counts).sum()).float()


class Task(Objective):
    """An objective whose outputs come from a `TaskHead`."""

    def __init__(self, settings: TaskSettings, n_outputs: int, vocabulary: Vocabulary) -> None:
        super().__init__(settings)
        self.dropout_rate, self.token_dropout_rate = settings.dropout_rate, settings.token_dropout_rate
        self.n_outputs, self.n_types = n_outputs, 0
        assert vocabulary.separator is not None
        self.separator = vocabulary.separator
        self.hidden_by = next(id for id in (vocabulary.mask, vocabulary.unk, self.separator) if id is not None)

    def equip(self, model: Model) -> None:
        model.replace_head(TaskHead(model.d_model, self.n_outputs, self.dropout_rate))
        self.n_types = model.n_types

    def ask(self, rows: Rows, labels: Tensor, part: str, at: Tensor | None = None) -> Batch:
        """A batch with `labels` of the rows, or of the flat target positions `at`."""
        ids = torch.from_numpy(rows.ids).long()
        segments = None if rows.segments is None else torch.from_numpy(rows.segments).long()
        tokens = ids.numel() if segments is None else int((segments != 0).sum())
        types = None
        if self.n_types > 1:  # a separator belongs to the text before it
            closed = ids.eq(self.separator).long()
            types = (closed.cumsum(1) - closed - 1).clamp(0, 1)
        inputs = Tokens(ids, None if segments is None else TokenPositions.packed(segments), types)
        counts = {part: len(labels), "tokens": tokens, "penalty": tokens}
        return Batch(inputs, labels, at, draws=self._hidden(rows), counts=counts)

    def _hidden(self, rows: Rows) -> dict[str, Tensor]:
        """The ids with some tokens masked, in training."""
        if not self.token_dropout_rate:
            return {}
        uniform = np.stack([np.random.Generator(np.random.Philox(key=int(key))).random(rows.ids.shape[1]) for key in rows.keys])
        hide = (uniform < self.token_dropout_rate) & (rows.ids != self.separator)
        return {"ids": torch.from_numpy(np.where(hide, self.hidden_by, rows.ids)).long()}


class Answering(nn.Module):
    """task(batch, state) -> Sums: one output per row with `pool`, else one per target position."""

    def __init__(self, model: Model, part: str, loss: Loss, pool: Pool | None = None) -> None:
        super().__init__()
        self.model, self.part, self.loss, self.pool = model, part, loss, pool

    def forward(self, batch: Batch, state: State | None = None) -> Sums:
        inputs = replace(batch.inputs, ids=batch.draws["ids"]) if self.training and "ids" in batch.draws else batch.inputs
        at = token_index(self.pool, inputs) if self.pool in ("first", "last") else batch.at
        mixed = self.model(inputs, None, at, None)
        hidden = pooled(self.pool, mixed.y, inputs) if self.pool in ("mean", "max") else mixed.y
        outputs = self.model.logits(hidden).float()
        parts = {self.part: self.loss(outputs, batch.labels, self.training)}
        if mixed.penalty is not None:
            parts["penalty"] = mixed.penalty
        return Sums(parts, {}, None, None if self.training else outputs)


def classified(weights: Tensor | None, smoothing: float) -> Loss:
    """Cross-entropy in nats; in training with class weights and label smoothing."""

    def loss(outputs: Tensor, labels: Tensor, training: bool) -> Tensor:
        if not training:
            return F.cross_entropy(outputs, labels, reduction="sum")
        if weights is None:
            return F.cross_entropy(outputs, labels, reduction="sum", label_smoothing=smoothing)
        # Not torch's class weights, which would distribute label smoothing unevenly.
        losses = F.cross_entropy(outputs, labels, reduction="none", label_smoothing=smoothing)
        return (losses * weights.to(losses)[labels]).sum()  # a dot product would be autocast to half precision

    return loss
