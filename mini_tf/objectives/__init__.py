"""Objectives: each owns a question (what is hidden, what is asked) and its judgement (the loss and what else is counted).

The contract stands here; every other file of this package is one objective, and its name is the word a recipe writes.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.labels import Labels
from mini_tf.data.tokenization.tokenizer import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.nn.state import State
from mini_tf.recipe import kind_settings

SMOOTHED = MappingProxyType({"label_smoothing": "label smoothing"})
"""`UNLIKE` of an objective that smooths labels in training alone."""


class Sums(NamedTuple):
    """The judgement of one micro-batch.

    parts: a scalar sum for each part of the loss; it is divided by counts[part] of the whole optimizer step.
    metrics: (sum, count) pairs of what only the forward pass knows. state: what a stream carries on, or None. outputs: in eval,
    of a task, the scores (T, C) or numbers (T,) that the model gives where something is asked.
    """

    parts: dict[str, Tensor]
    metrics: dict[str, tuple[Tensor, Tensor | int]]
    state: State | None
    outputs: Tensor | None = None


class ObjectiveSettings(kind_settings.ObjectiveSettings):
    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Objective":
        """labels: what there is to answer, where rows are labelled. Raises DataFault where the vocabulary lacks a token that is needed."""
        raise NotImplementedError


class Objective:
    """A question about rows of text, and how an answer is judged."""

    lookahead: int = 0
    """Tokens that a row holds beyond the context, since they are asked for but not read."""
    whole_words: bool = False
    """Rows must say where words begin."""
    weights: Mapping[str, float] = {}
    """The weight of each part of the loss, by its name; 1 where absent."""

    def __init__(self, settings: kind_settings.ObjectiveSettings) -> None:
        """settings: what the objective was built from, whose declarations others read."""
        self.settings = settings

    def equip(self, model: Model) -> None:
        """Give a model what this question needs besides; weights are drawn from torch's generator."""

    def prepare(self, rows: Rows) -> Batch:
        """The question about these rows: pure, on the CPU; each row draws from its own key, so any split gives the same."""
        raise NotImplementedError

    def task(self, model: Model) -> nn.Module:
        """The one module that is compiled, wrapped and saved: task(batch, state) -> Sums; `model` is an attribute of it.

        Whatever other modules it has belong to the objective: they are trained by the same optimizer and kept in checkpoints, but are
        no part of model.safetensors. Their weights are drawn from torch's generator, when the task is built.
        """
        raise NotImplementedError
