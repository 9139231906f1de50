"""minitf's side: the model of a recipe, and its own training loop on rows that are made here."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from mini_tf.data.batch import Rows
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.model import Model
from mini_tf.objectives import Objective
from mini_tf.recipe import reading
from mini_tf.recipe.recipe import Recipe
from mini_tf.training.feed import Feed
from mini_tf.training.machine.device import Setup
from mini_tf.training.optimizer import build as build_optimizer
from mini_tf.training.plan import RowPlan
from mini_tf.training.schedule import Horizon, TrainingSchedule
from mini_tf.training.training import Training

from .contest import device, threads
from .shapes import Shape


class RandomRows:
    """Stands for a text: exactly one batch of rows, so that every step learns from the same tokens, in another
    order.
    """

    layout = None

    def __init__(self, shape: Shape, lookahead: int) -> None:
        numbers = np.random.default_rng(0).integers(4, shape.vocabulary, (shape.batch, shape.context + lookahead))
        self.ids = numbers.astype(np.int64)

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        return Rows(self.ids[rows], keys)


def shape_overrides(shape: Shape) -> list[str]:
    """What a recipe is told so that its model has this shape."""
    return [
        f"model.n_layers={shape.n_layers}", f"model.d_model={shape.d_model}", f"model.n_heads={shape.n_heads}",
        f"train.context={shape.context}", f"train.batch_size={shape.batch}",
    ]  # fmt: skip


def equal_recipe(shape: Shape) -> Path:
    """The recipe file of the architecture that all sides have."""
    return Path(__file__).with_name("bert.yaml" if shape.masked else "gpt2.yaml")


def recipe_of(shape: Shape, *overrides: str) -> Recipe:
    return reading.read(str(equal_recipe(shape)), [*shape_overrides(shape), *overrides]).recipe


def objective_of(recipe: Recipe, shape: Shape) -> Objective:
    objective: Objective = recipe.objective.build(Vocabulary(shape.vocabulary, pad=0, unk=1, separator=2, mask=3))
    return objective


def feed_of(recipe: Recipe, shape: Shape) -> Feed:
    objective = objective_of(recipe, shape)
    rows = RandomRows(shape, objective.lookahead)
    return Feed(RowPlan(shape.batch, shape.batch, recipe.train.seed), rows, objective.prepare, shape.batch)  # type: ignore[arg-type]


def first_batch(shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    """ids (B, L), labels (T,) and the flat positions (T,) that they belong at: what every side sees first."""
    [batch] = feed_of(recipe_of(shape), shape).micro_batches(0)
    at = batch.target_positions if batch.target_positions is not None else torch.arange(batch.inputs.ids.numel())
    return batch.inputs.ids.contiguous(), batch.labels.contiguous(), at


def training_of(recipe: Recipe, shape: Shape) -> tuple[Model, Training]:
    """The model and its training, as `minitf pretrain` builds them, but on random rows."""
    model: Model = recipe.model.build(shape.vocabulary, shape.context)
    task: nn.Module = objective_of(recipe, shape).task(model)
    setup = Setup(torch.device(device()), precision=recipe.runtime.precision, threads=threads())
    setup.apply()
    task.to(setup.device)
    schedule = TrainingSchedule(recipe.schedule, recipe.optimizer.lr, Horizon(recipe.train.steps, None))
    optimizer = build_optimizer(recipe.optimizer, model, setup.compute_dtype)
    return model, Training(
        task, feed_of(recipe, shape), optimizer, schedule, setup, recipe.train.seed, recipe.optimizer.clip
    )
