"""The components of a training run: recipe, data, objective, model, setup; and the training loop built from them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.datasets import TokenizedData
from mini_tf.data.examples import Labels
from mini_tf.data.mixture import Mixture
from mini_tf.data.packing import Packing
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.jobs.initial import LoadedTensors
from mini_tf.nn import objective_network
from mini_tf.nn.model import Model
from mini_tf.objectives import Objective, Task
from mini_tf.optimizers import Optimizer
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.sharding import Sharding
from mini_tf.pipelines import pipeline_of
from mini_tf.recipe.metrics import BestMetric, best_metric
from mini_tf.recipe.recipe import Recipe
from mini_tf.system.errors import RunFault
from mini_tf.training.captured_steps import with_recurring_shapes
from mini_tf.training.divergence import Tolerance
from mini_tf.training.due import NEVER, EvaluationSchedule, step_flops
from mini_tf.training.evaluation import MetricAccumulator, eval_batch_size, evaluate, evaluation_draws, pack
from mini_tf.training.feed import Feed
from mini_tf.training.flops import training_flops
from mini_tf.training.machine.device import Setup
from mini_tf.training.plan import MixturePlan, Plan, make_plan
from mini_tf.training.schedule import TrainingSchedule, horizon_of
from mini_tf.training.training import Training

FLOPS_STEPS = 8
"""Steps whose FLOPs are averaged: with train.batch_tokens their sizes differ."""


@dataclass(frozen=True)
class Parts:
    """The components of a run, built from the recipe and the data before the first step."""

    recipe: Recipe
    data: TokenizedData
    objective: Objective
    setup: Setup
    model: Model
    task: nn.Module
    meta_task: nn.Module
    """`task` on the meta device, to count its FLOPs without memory and without other processes."""
    loaded: LoadedTensors | None = None
    """The tensors loaded from model.init_from; None without init_from and for a resumed run."""
    fully_trainable: Sequence[str] | None = None
    """Parameters trained directly, beside an adapter; None without an adapter."""
    sharding: Sharding = field(default_factory=lambda: Sharding(ProcessGroup()))
    """What the processes that train the model together divide among them."""

    @property
    def group(self) -> ProcessGroup:
        """The processes that train the model together."""
        return self.sharding.group

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the targets."""
        return self.data.tokenizers.target

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self.data.tokenizers.source

    @property
    def labels(self) -> Labels | None:
        return self.data.labels

    @property
    def decision(self) -> None:
        """None: nothing is fitted before the end of training."""

    @cached_property
    def best(self) -> BestMetric:
        """The metric of `eval.best`."""
        return best_metric(self.recipe.objective, self.recipe.eval, None if self.labels is None else self.labels.names)

    @cached_property
    def trainable(self) -> nn.Module:
        """The model, together with the objective's own network if there is one; the optimizer takes its parameters."""
        return objective_network.trained_module(self.model, self.task)

    def objective_tensors(self) -> dict[str, Tensor]:
        """The tensors of the objective's own network, which is not part of the model; not copies."""
        return objective_network.objective_tensors(self.model, self.task)

    def load(self, model: Mapping[str, Tensor], objective: Mapping[str, Tensor]) -> None:
        """Load the weights of the model and of the objective's own network."""
        self.sharding.copy(self.model.weights(), model)
        self.sharding.copy(self.objective_tensors(), objective)

    @cached_property
    def train(self) -> Packing:
        return pack(self.recipe, self.data.train, self.data.tokenizer, self.objective)

    @cached_property
    def val(self) -> Packing:
        return pack(self.recipe, self.data.val, self.data.tokenizer, self.objective)

    @cached_property
    def plan(self) -> Plan:
        """The rows of each step's batch."""
        return make_plan(self.recipe.train, self.train)

    @cached_property
    def evaluations(self) -> EvaluationSchedule:
        """The schedule of evaluations, and the number of tokens of each."""
        step_tokens = self.train.n_rows * self.train.row_tokens / self.plan.epoch_steps
        return EvaluationSchedule(self.recipe, step_flops(self.model, self.recipe), step_tokens, self.validation_tokens)

    @property
    def words_per_step(self) -> float:
        """Mean words of the training text in a step."""
        if isinstance(self.plan, MixturePlan) and isinstance(self.train, Mixture):
            rows = zip((self.plan.shares * self.plan.batch_size).tolist(), self.train.parts, strict=True)
            return math.fsum(n * part.row_tokens * part.store.words / len(part.store) for n, part in rows)
        tokens = self.train.n_rows * self.train.row_tokens / self.plan.epoch_steps
        return tokens * self.data.train.words / len(self.data.train)

    @cached_property
    def word_steps(self) -> dict[int, int]:
        """Each step after which a checkpoint of `checkpoint.at_words` is saved, with its words."""
        at_words = sorted(self.recipe.checkpoint.at_words)
        return {math.ceil(words / self.words_per_step - 1e-9): words for words in at_words}

    @property
    def validation_tokens(self) -> int:
        """Tokens of an evaluation on all validation data."""
        return int(self.val.eval_row_tokens.sum())

    @property
    def all_validation_data(self) -> str:
        """In words: running text by its tokens, other data by their examples."""
        dataset = self.recipe.objective.dataset()
        if dataset.STREAM:
            return f"all {self.validation_tokens:,} validation tokens"
        return f"all {self.val.store.n_documents:,} validation {dataset.UNIT}"

    @cached_property
    def sample_tokens(self) -> int | None:
        """Requested tokens of an evaluation during training; None: all. Depends on the recipe only, not on --extend."""
        return self.evaluations.tokens(self.schedule.horizon)

    @property
    def sample_size(self) -> int:
        """Tokens of an evaluation during training, which reads whole rows."""
        return int(self.val.eval_row_tokens[self.val.eval_row_indices(self.sample_tokens)].sum())

    @property
    def sampled_validation_data(self) -> str:
        """What an evaluation during training reads, in words."""
        dataset, rows = self.recipe.objective.dataset(), self.val.eval_row_indices(self.sample_tokens)
        size, total, unit = self.sample_size, self.validation_tokens, "tokens"
        if not dataset.STREAM and self.val.n_rows == self.val.store.n_documents:
            size, total, unit = len(rows), self.val.n_rows, dataset.UNIT
        return f"a fixed sample of {size:,} of {total:,} validation {unit}"

    def evaluate(
        self,
        tokens: int | None = None,
        each_batch: Callable[[], None] | None = None,
        accumulator: MetricAccumulator | None = None,
        *,
        together: bool = False,
    ) -> dict[str, float]:
        """The metrics on the validation data, or on a sample of `tokens` tokens spread evenly over them.

        accumulator: default that of the pipeline. together: all processes evaluate, and all call it.
        """
        rows = eval_batch_size(self.recipe, self.setup.micro_batch_size)
        sharding = self.sharding if together else None
        used = accumulator or pipeline_of(self).metric_accumulator()
        return evaluate(
            self.task, self.objective, self.val, self.setup, rows, tokens, each_batch, used, sharding=sharding
        )

    def fit_on_validation(self, tokens: int | None) -> None:
        """Fit what only evaluation uses, on the data of `evaluate`; all processes get the values of the first."""
        if type(self.objective).fit_on_validation is Objective.fit_on_validation:
            return
        rows = eval_batch_size(self.recipe, self.setup.micro_batch_size)
        with evaluation_draws(self.setup), self.sharding.whole(), self.setup.autocast():
            chosen = (self.objective.prepare_evaluation(part.rows) for part in self.val.eval_batches(rows, tokens))
            batches = (batch.to(self.setup.device) for batch in chosen)
            fitted = self.objective.fit_on_validation(self.task, batches)
        for buffer in fitted:
            self.group.broadcast(buffer)

    @property
    def flops_per_step(self) -> int | None:
        """FLOPs of a step, forward and backward: the mean of the first steps; None if later steps cost less or more."""
        feed = Feed(self.plan, self.train, self.objective.prepare, self.setup.micro_batch_size)
        batches = [batch for step in range(FLOPS_STEPS) for batch in feed.micro_batches(step)]
        if isinstance(self.meta_task, Task) and type(self.meta_task).refresh is not Task.refresh:
            self.meta_task.refresh(0, NEVER)
            of_last_steps = self.flops_of(batches[:1])
            self.meta_task.refresh(0, 0)
            if of_last_steps != self.flops_of(batches[:1]):
                return None
        return self.flops_of(batches) // FLOPS_STEPS

    def flops_of(self, batches: Sequence[Batch]) -> int:
        """FLOPs of forward and backward on these micro-batches."""
        return training_flops(self.meta_task, dict(self.task.named_buffers()), batches, self.setup.device)

    @property
    def prepare(self) -> Callable[[Rows], Batch]:
        """`Objective.prepare`, for training steps: in CUDA graphs, with shapes that recur."""
        if not self.setup.graphs:
            return self.objective.prepare
        shape = self.train.shape
        return with_recurring_shapes(self.objective.prepare, self.task, shape.context, shape.lookahead)

    @property
    def schedule(self) -> TrainingSchedule:
        horizon = horizon_of(self.recipe.train, self.plan.epoch_steps, self.train.n_rows * self.train.row_tokens)
        return TrainingSchedule(self.recipe.schedule, self.recipe.optimizer.lr, horizon)


def training_of(parts: Parts, extensions: Iterable[tuple[int, int]], optimizer: Optimizer) -> Training:
    """The training loop of a run; extensions: (first step, steps) of each --extend."""
    recipe, schedule = parts.recipe, parts.schedule
    for begin, steps in extensions:
        if begin < schedule.start_step or begin > (schedule.horizon.steps or begin):
            raise RunFault(f"run.json: extensions: no part of the run ended at step {begin}")
        schedule = schedule.extended(begin, steps)
    reduction = parts.sharding.reduction(recipe.runtime.reduce, optimizer)
    rows = parts.setup.micro_batch_size
    return Training(
        task=parts.task,
        feed=Feed(parts.plan, parts.train, parts.prepare, rows, reduction.assigned, schedule.progress),
        optimizer=optimizer,
        schedule=schedule,
        setup=parts.setup,
        seed=recipe.train.seed,
        clip=recipe.optimizer.clip,
        tolerance=Tolerance.of(recipe.train),
        weights=parts.objective.weights,
        reduction=reduction,
        sharding=parts.sharding,
    )
