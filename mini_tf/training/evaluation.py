"""Evaluation: losses and metrics over every target of a dataset, each counted once."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from operator import itemgetter
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch
from mini_tf.data.mixture import Mixture, mixture_of
from mini_tf.data.packing import EvalBatch, Packing, Shape
from mini_tf.data.store import Store
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.nn.state import State, reorder
from mini_tf.objectives import LossSums, Objective, Task
from mini_tf.parallel.dividing import DividedOutputs, in_turns
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.sharding import Sharding
from mini_tf.recipe.corpora import sources_of
from mini_tf.recipe.kind_settings.objectives import NATS_PER_TOKEN
from mini_tf.recipe.recipe import Recipe
from mini_tf.system.progress import show_progress
from mini_tf.system.seeds import seed_of
from mini_tf.training.machine.device import Setup

Sums = dict[str, tuple[float, float]]
"""(sum, count) by name."""
GRADIENT_ROWS = 8
"""Rows of an evaluation for metrics of gradients (`Task.gradient_metrics`), which need a backward pass."""


class MetricAccumulator(Protocol):
    """Collects the outputs of an evaluation, for metrics that are not means over batches.

    scores may have a `loss` that replaces that of the task: of probabilities after temperature scaling.
    """

    def add(self, batch: Batch, outputs: Tensor) -> None: ...
    def scores(self) -> dict[str, float]: ...


class ClassPredictions(ABC):
    """A metric accumulator that keeps true and predicted classes, for the confusion matrix."""

    @property
    @abstractmethod
    def truth(self) -> np.ndarray:
        """(N,): true class ids."""

    @property
    @abstractmethod
    def predicted(self) -> np.ndarray:
        """(N,): predicted class ids."""


class ClassProbabilities(ClassPredictions):
    """A metric accumulator that keeps class probabilities, too, for calibration."""

    @property
    @abstractmethod
    def probabilities(self) -> np.ndarray:
        """(N, C): predicted probabilities."""

    @property
    def unscaled(self) -> np.ndarray | None:
        """(N, C): the probabilities before temperature scaling; None without it."""
        return None


def pack(
    recipe: Recipe, store: Store, tokenizer: Tokenizer, objective: Objective, context: int | None = None
) -> Packing:
    """The rows of a store for the recipe's objective. context: default `train.context`."""
    words = tokenizer.word_starts if objective.needs_word_starts else None
    sentences = tokenizer.sentence_starts if objective.needs_sentence_starts else None
    length = (context or recipe.train.context) - objective.added_tokens
    streams = recipe.train.batch_size if recipe.train.stream else 0
    shape = Shape(length, objective.lookahead, recipe.data.pack, recipe.train.seed, words, sentences, streams)
    dataset = recipe.objective.dataset()
    packing: Packing = dataset.packing(store, shape)
    if len(store.sources) < 2 and not any(source.name for source in store.sources):
        return packing
    return mixture_of(
        [dataset.packing(part, shape) for part in store.by_source()], packing, sources_of(recipe.data.train)
    )


@torch.no_grad()
def evaluate(
    task: nn.Module,
    objective: Objective,
    packing: Packing,
    setup: Setup,
    batch_size: int,
    tokens: int | None = None,
    each_batch: Callable[[], None] | None = None,
    accumulator: MetricAccumulator | None = None,
    *,
    sharding: Sharding | None = None,
) -> dict[str, float]:
    """The metrics by name: loss, targets (their number), loss.PART if several, those of task and `accumulator`.

    Also perplexity and bits_per_byte if the objective declares them; the latter divides by the bytes of the raw text,
    on a sample by the average bytes of as many targets. Random draws are fixed per example, so it is repeatable.

    tokens: of a sample, spread evenly. each_batch: called before each batch, equally often on all processes, which then
    wait for each other; an exception from it ends the evaluation. sharding: of processes that evaluate together: they
    divide the batches, unless a state is carried over, and have the same metrics to the bit; rank 0 alone has all
    outputs in its accumulator.
    """
    sharding = sharding or Sharding(ProcessGroup())
    group = ProcessGroup() if packing.shape.streams else sharding.group
    outputs = None if accumulator is None else DividedOutputs(group, accumulator.add)
    alone = outputs is None and each_batch is None and not sharding.divides_weights
    measured, gradients = list[tuple[int, Sums, Sums, str]](), dict[str, float]()
    was_training = task.training
    task.eval()
    with evaluation_draws(setup), group.independently() if alone else nullcontext():
        state: State | None = None
        batches = _with_progress(packing, batch_size, tokens)
        for number, (rows, continues, ends, source), is_own in in_turns(group, batches):
            if not is_own:
                if outputs is not None:
                    outputs.skip(partial(objective.prepare_evaluation, rows))
                continue
            if each_batch is not None:
                each_batch()
            batch = objective.prepare_evaluation(rows)
            before = _state_of(task, len(rows), continues, state, sharding) if packing.shape.streams else None
            with setup.autocast(), sharding.group.communication():
                output = task(batch.to(setup.device), before)
            if number is None:
                continue
            if not ends:
                state = task.carry(output.state)  # type: ignore[operator]
            if outputs is not None:
                outputs.append(batch, output.outputs)
            measured.append((number, *_sums(output, batch), source))
        if outputs is not None:
            outputs.finish()
        if isinstance(task, Task) and type(task).gradient_metrics is not Task.gradient_metrics:
            with sharding.whole():
                batch = objective.prepare_evaluation(next(packing.eval_rows(GRADIENT_ROWS, tokens)))
                with torch.enable_grad(), setup.autocast():
                    gradients = task.gradient_metrics(batch.to(setup.device))
    task.train(was_training)
    in_order = sorted((of_batch for some in group.all_gather(measured) for of_batch in some), key=itemgetter(0))
    added = _added(sums for _, _, sums, _ in in_order)
    metrics = {name: total / max(count, 1) for name, (total, count) in added.items()}
    more = (group.on_rank_0(accumulator.scores) if accumulator is not None else {}) | gradients | metrics
    scores = _scores(objective, packing.bytes_of, _added(losses for _, losses, _, _ in in_order), more)
    return scores | _scores_by_source(objective, packing, [(source, losses) for _, losses, _, source in in_order])


@contextmanager
def evaluation_draws(setup: Setup) -> Iterator[None]:
    """A model may draw random numbers too; evaluation must not depend on torch's generator nor change it."""
    with torch.random.fork_rng(devices=[setup.device] if setup.device.type == "cuda" else []):
        torch.manual_seed(seed_of("evaluate"))
        yield


def _sums(output: LossSums, batch: Batch) -> tuple[Sums, Sums]:
    """Those of a batch: of the parts of the loss, and of the metrics."""
    losses = {name: (float(part), float(batch.counts[name])) for name, part in output.parts.items()}
    return losses, {name: (float(total), float(count)) for name, (total, count) in output.metrics.items()}


def _state_of(
    task: nn.Module, n_rows: int, continues: np.ndarray | None, before: State | None, sharding: Sharding
) -> State | None:
    """The state with which the rows of a stream begin: that of the rows that they continue, or an empty one."""
    if continues is not None:
        return reorder(before, torch.from_numpy(continues))
    with sharding.whole():  # an empty state is of the type of the weights
        return task.start(n_rows)  # type: ignore[operator, no-any-return]


def _added(sums: Iterable[Sums]) -> Sums:
    """(sum, count) of each name over all batches, added in their order."""
    added: Sums = {}
    for of_batch in sums:
        for name, (total, count) in of_batch.items():
            before = added.get(name, (0.0, 0.0))
            added[name] = before[0] + total, before[1] + count
    return added


def _scores(
    objective: Objective, bytes_of: Callable[[float], float], sums: Sums, more: dict[str, float]
) -> dict[str, float]:
    """The metrics of `evaluate`. bytes_of: targets; sums: of each part of the loss; more: metrics that are complete."""
    # The penalty regularizes training; it is not part of a validation loss.
    losses = {name: total / max(count, 1) for name, (total, count) in sums.items() if name != "penalty"}
    loss = sum(objective.weights.get(name, 1.0) * value for name, value in losses.items())
    scores = {"loss": loss, **({f"loss.{name}": value for name, value in losses.items()} if len(losses) > 1 else {})}
    first, is_cross_entropy = next(iter(losses)), objective.settings.LOSS_UNIT == NATS_PER_TOKEN
    if is_cross_entropy:
        scores["perplexity"] = math.exp(losses[first]) if losses[first] < 700 else math.inf
    scores |= more
    if is_cross_entropy and "every_token" in objective.settings.PREDICTS:
        scores["bits_per_byte"] = sums[first][0] / math.log(2) / bytes_of(sums[first][1])
    return scores | {"targets": max(sums[name][1] for name in losses)}


def _scores_by_source(objective: Objective, packing: Packing, sums: Sequence[tuple[str, Sums]]) -> dict[str, float]:
    """The loss and bits per byte of each source of a mixture. sums: of each batch, with its source."""
    scores: dict[str, float] = {}
    for name in dict.fromkeys(source for source, _ in sums) if isinstance(packing, Mixture) else ():
        added = _added(of_batch for source, of_batch in sums if source == name)
        of_source = _scores(objective, partial(packing.bytes_of_source, name), added, {})  # type: ignore[attr-defined]
        scores |= {f"{key}.{name}": of_source[key] for key in ("loss", "bits_per_byte") if key in of_source}
    return scores


def _with_progress(packing: Packing, batch_size: int, tokens: int | None) -> Iterator[EvalBatch]:
    """The batches of an evaluation, with a progress line."""
    of_rows, n_done = packing.eval_row_tokens[packing.eval_row_indices(tokens)], 0
    with show_progress(f"evaluating {int(of_rows.sum()):,} tokens") as report_progress:
        for batch in packing.eval_batches(batch_size, tokens):
            report_progress(n_done / len(of_rows))
            yield batch
            n_done += len(batch.rows)


def eval_batch_size(recipe: Recipe, micro_batch_size: int) -> int:
    """Rows per batch of an evaluation: a training micro-batch, but at most the full-length rows of a step."""
    return min(micro_batch_size, max(1, recipe.train.step_tokens // recipe.train.context))
