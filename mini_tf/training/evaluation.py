"""How good a model is on a text: every target of the text once, in windows from its first token on."""

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.packing import Packing, Shape
from mini_tf.data.store import Store
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.objectives import Objective
from mini_tf.recipe.recipe import Recipe
from mini_tf.system.progress import show_progress
from mini_tf.system.seeds import seed_of
from mini_tf.training.machine.device import Setup


class MetricAccumulator(Protocol):
    """Gathers the answers of an evaluation, batch by batch, for figures that are no means."""

    def add(self, batch: Batch, outputs: Tensor) -> None: ...
    def scores(self) -> dict[str, float]: ...


class ClassProbabilities(ABC):
    """An accumulator that keeps what the picture of a calibration is made of."""

    @property
    @abstractmethod
    def truth(self) -> np.ndarray:
        """(N,): the classes that are right, by number."""

    @property
    @abstractmethod
    def probabilities(self) -> np.ndarray:
        """(N, C): of all classes."""


def pack(recipe: Recipe, store: Store, tokenizer: Tokenizer, objective: Objective, context: int | None = None) -> Packing:
    """A store as the rows that a recipe's objective reads. context: by default the recipe's."""
    word_starts = tokenizer.word_starts if objective.whole_words else None
    shape = Shape(context or recipe.train.context, objective.lookahead, recipe.data.pack, recipe.train.seed, word_starts)
    packing: Packing = recipe.objective.dataset().packing(store, shape)
    return packing


@torch.no_grad()
def evaluate(
    task: nn.Module,
    objective: Objective,
    packing: Packing,
    setup: Setup,
    batch_size: int,
    tokens: int | None = None,
    each_batch: Callable[[], None] = lambda: None,
    accumulator: MetricAccumulator | None = None,
) -> dict[str, float]:
    """loss, targets, what the task counts, what `accumulator` computes, and perplexity and bits_per_byte where the objective declares them.

    accumulator: what gathers the outputs of a task. Of a loss of several parts each is given as loss.PART.
    `tokens`: only so many of the text, spread evenly. bits_per_byte divides by the bytes of the raw text, for a part of it by
    those of an average part. What is random in the question is fixed by example, so two evaluations agree. each_batch is
    called before each batch; what it raises ends the evaluation.
    """
    mode = task.training
    task.eval()
    sums, counts, totals, many = (defaultdict[str, float](float) for _ in range(4))
    # A model may draw noise of its own; evaluation must neither depend on what ran before nor disturb what runs after.
    with torch.random.fork_rng(devices=[setup.device] if setup.device.type == "cuda" else []):
        torch.manual_seed(seed_of("evaluate"))
        for rows in _said(packing, batch_size, tokens):
            each_batch()
            batch = objective.prepare(rows)
            with setup.autocast():
                judged = task(batch.to(setup.device), None)
            if accumulator is not None:
                accumulator.add(batch, judged.outputs)
            for name, part in judged.parts.items():
                sums[name], counts[name] = sums[name] + float(part), counts[name] + batch.counts[name]
            for name, (total, number) in judged.metrics.items():
                totals[name], many[name] = totals[name] + float(total), many[name] + float(number)
    task.train(mode)
    # What training pays for its means is no figure of merit.
    losses = {name: total / max(counts[name], 1) for name, total in sums.items() if name != "penalty"}
    loss = sum(objective.weights.get(name, 1.0) * value for name, value in losses.items())
    scores = {"loss": loss, **({f"loss.{name}": value for name, value in losses.items()} if len(losses) > 1 else {})}
    settings, part = objective.settings, objective.settings.TOKEN_LOSS
    if part is not None:
        scores["perplexity"] = math.exp(losses[part]) if losses[part] < 700 else math.inf
    scores |= (accumulator.scores() if accumulator is not None else {}) | {
        name: total / max(many[name], 1) for name, total in totals.items()
    }
    if part is not None and settings.EVERY_TOKEN:
        share = counts[part] / max(1, len(packing.store) - objective.lookahead)
        scores["bits_per_byte"] = sums[part] / math.log(2) / (packing.store.raw_bytes * share)
    return scores | {"targets": max(counts[name] for name in losses)}


def _said(packing: Packing, batch_size: int, tokens: int | None) -> Iterator[Rows]:
    """The rows of an evaluation, while a person is told how many are read."""
    numbers = packing.eval_numbers(tokens)
    with show_progress(f"evaluating {int(packing.held_out_tokens[numbers].sum()):,} tokens") as reached:
        for batch, rows in enumerate(packing.eval_rows(batch_size, tokens)):
            reached(batch * batch_size / len(numbers))
            yield rows


def rows_at_once(recipe: Recipe, micro_batch_size: int) -> int:
    """Rows that are judged together: a pass of training, but no more than fit into a step at full length."""
    return min(micro_batch_size, max(1, recipe.train.step_tokens // recipe.train.context))
