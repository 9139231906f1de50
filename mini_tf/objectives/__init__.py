"""Objectives: each makes inputs and targets from rows of token ids, and computes the loss and metrics.

This file is the contract. Every other file of this package is one objective, named by the word that a recipe writes.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.store import Store
from mini_tf.nn.model import Model
from mini_tf.nn.state import State
from mini_tf.recipe.kind_settings.objectives import NATS_PER_TOKEN, ObjectiveSettings, by_settings

__all__ = ["NATS_PER_TOKEN", "LossSums", "Objective", "ObjectiveSettings", "Task", "by_settings"]


class LossSums(NamedTuple):
    """Sums of losses and metrics over one micro-batch.

    parts: each part of the loss as a scalar sum; training divides it by counts[part] of the whole optimizer step.
    metrics: (sum, count) of each metric. state: the recurrent state of a stream after these rows, else None. outputs:
    in eval mode, for a task with labels: logits (T, C) or predicted numbers (T, 1) of the targets.
    """

    parts: dict[str, Tensor]
    metrics: dict[str, tuple[Tensor, Tensor | int]]
    state: State | None
    outputs: Tensor | None = None


class Task(nn.Module):
    """A task with more than a loss; one without need not derive from this class."""

    model: Model

    @property
    def phase(self) -> Hashable:
        """What the forward pass in training depends on beside tensors and its arguments, e.g. a stage of training that
        `refresh` changes: a CUDA graph holds for one phase."""
        return None

    def refresh(self, seed: int, step: int) -> None:
        """Called once before each optimizer step (`step`, from 0); a function of seed, step and the current weights.

        It changes tensors in place, as in `Mixer.refresh`.
        """

    def pad_targets(self, batch: Batch, parts: int) -> Batch:
        """The batch with ignored targets, so that their number is a multiple of 1 / parts of the positions; by default
        the batch as it is.

        In training they add exactly 0 to losses, metrics and gradients; `counts` are of the real targets.
        """
        return batch

    def gradient_metrics(self, batch: Batch) -> dict[str, float]:
        """Metrics that need gradients, of the first rows of an evaluation, in eval mode. Must not change `.grad`."""
        return {}

    def token_predictor(self) -> Model:
        """The model that fills masks. Raises RunFault if there is none."""
        return self.model


class Objective:
    """Inputs, targets, loss and metrics of one way to train a model."""

    lookahead: int = 0
    """Tokens of a row beyond the context: targets of the last positions, never inputs."""
    added_tokens: int = 0
    """Tokens that it adds to a row of running text, such as an end token; rows are shorter by as many."""
    visible_targets: float = 0.0
    """Largest share of the targets that the inputs show, such as selected tokens that masking leaves unchanged."""
    needs_word_starts: bool = False
    """`prepare` reads `Rows.word_starts`."""
    needs_sentence_starts: bool = False
    """`prepare` reads `Rows.sentence_starts`."""
    problem_type: str | None = None
    """What transformers' models of such labels have as `problem_type`; None: there is no word for it."""
    teacher: nn.Module | None = None
    """The task of `ObjectiveSettings.teacher_run` in eval mode, set before `task` is called in training."""
    weights: Mapping[str, float] = {}
    """Weight of each part of the loss; 1 if absent."""
    token_parts: int = 1
    """With `NATS_PER_TOKEN`: so many first parts of the loss are cross-entropies, of which each target is in one."""

    def __init__(self, settings: ObjectiveSettings) -> None:
        """settings: of this objective; other packages read their class variables."""
        self.settings = settings

    def add_modules(self, model: Model) -> None:
        """Add the modules that the objective needs to `model`, e.g. a task head, initialized with torch's generator."""

    def fit(self, task: nn.Module, data: Store) -> None:
        """Set buffers of the task from the training data, once before the first step; checkpoints keep them."""

    def fit_on_validation(self, task: nn.Module, batches: Iterable[Batch]) -> Sequence[Tensor]:
        """Set buffers that only evaluation uses, before each evaluation, from its batches; returns them.

        The default is none, and no batch is read.
        """
        return ()

    def prepare(self, rows: Rows) -> Batch:
        """Make the inputs and targets of these rows, on the CPU.

        A pure function: all randomness of a row comes from its key, so any split into micro-batches gives the same.
        """
        raise NotImplementedError

    def prepare_evaluation(self, rows: Rows) -> Batch:
        """`prepare` for an evaluation; it may make several rows of one, so that each is measured in several ways."""
        return self.prepare(rows)

    def task(self, model: Model) -> nn.Module:
        """The module that computes the loss: task(batch, state) -> LossSums, with `model` as a submodule.

        Training compiles this module. Its other submodules belong to the objective: they are initialized here
        with torch's generator, trained by the same optimizer and saved in checkpoints, but not in model.safetensors. A
        task that is a `Task` may do more.
        """
        raise NotImplementedError
