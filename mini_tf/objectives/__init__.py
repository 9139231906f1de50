"""Objectives: each prepares inputs and targets (`prepare`) and computes the loss and metrics (`task`).

The contract is here; every other file of this package is one objective, named by the file name in a recipe.
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
"""`UNLIKE` of an objective with label smoothing, which applies in training only."""


class Sums(NamedTuple):
    """Losses and metrics of one micro-batch.

    parts: a scalar sum per part of the loss, to be divided by counts[part] of the whole optimizer step.
    metrics: (sum, count) pairs that only the forward pass knows. state: the recurrent state of a stream, or None.
    outputs: in eval, of a task head, logits (T, C) or numbers (T,) at the targets.
    """

    parts: dict[str, Tensor]
    metrics: dict[str, tuple[Tensor, Tensor | int]]
    state: State | None
    outputs: Tensor | None = None


class ObjectiveSettings(kind_settings.ObjectiveSettings):
    def build(self, vocabulary: Vocabulary, labels: Labels | None = None) -> "Objective":
        """labels: the labels of the dataset, if any. Raises DataFault if the vocabulary lacks a required token."""
        raise NotImplementedError


class Objective:
    """Prepares batches and builds the module that computes the loss."""

    lookahead: int = 0
    """Tokens of a row beyond the context: targets that are not inputs."""
    whole_words: bool = False
    """Rows must have `word_starts`."""
    weights: Mapping[str, float] = {}
    """Weight of each part of the loss; 1 where absent."""

    def __init__(self, settings: kind_settings.ObjectiveSettings) -> None:
        """The settings that it was built from."""
        self.settings = settings

    def equip(self, model: Model) -> None:
        """Add what this objective needs to a model, such as a task head; weights are drawn from torch's generator."""

    def prepare(self, rows: Rows) -> Batch:
        """Inputs and targets of these rows. Pure, on the CPU; each row draws from its own key, so any split gives the
        same.
        """
        raise NotImplementedError

    def task(self, model: Model) -> nn.Module:
        """The module that is compiled, wrapped and saved: task(batch, state) -> Sums; its attribute `model` is the
        model.

        Its other modules belong to the objective: they are trained by the same optimizer and saved in checkpoints, but
        not in model.safetensors. Their weights are drawn from torch's generator.
        """
        raise NotImplementedError
