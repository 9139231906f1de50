"""What a run is made of before its first step: objective, text as rows, model, setup; and what steps through it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, nn

from mini_tf.data.datasets import TokenizedData
from mini_tf.data.labels import Labels
from mini_tf.data.packing import Packing
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.nn.model import Model
from mini_tf.nn.weights import objective_network
from mini_tf.objectives import Objective
from mini_tf.optimizers import Optimizer
from mini_tf.pipelines import pipeline_of
from mini_tf.recipe.recipe import Recipe
from mini_tf.trained.initial import LoadedTensors
from mini_tf.training.divergence import Tolerance
from mini_tf.training.due import EvaluationSchedule, step_flops
from mini_tf.training.evaluation import eval_batch_size, evaluate, pack
from mini_tf.training.feed import Feed
from mini_tf.training.loop import Training
from mini_tf.training.machine.device import Setup
from mini_tf.training.plan import Plan, make_plan
from mini_tf.training.schedule import TrainingSchedule, horizon_of


@dataclass(frozen=True)
class Parts:
    """All that is made from the recipe and the text before the first step."""

    recipe: Recipe
    data: TokenizedData
    objective: Objective
    setup: Setup
    model: Model
    task: nn.Module
    taken: LoadedTensors | None = None
    """What the model took over of another run; None too where it has weights of its own."""
    whole: Sequence[str] | None = None
    """Beside an adapter, the parameters that learn as a whole."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Of what the model predicts."""
        return self.data.used.target

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self.data.used.source

    @property
    def labels(self) -> Labels | None:
        return self.data.labels

    @cached_property
    def trainable(self) -> nn.Module:
        """What the optimizer moves: the model, and with it the objective's own network where there is one."""
        return objective_network.trained_together(self.model, self.task)

    def own_tensors(self) -> dict[str, Tensor]:
        """Of the objective's own network, which is no part of the model; not copies."""
        return objective_network.own_tensors(self.model, self.task)

    def load(self, model: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
        """Take over the weights of the model and of the objective's own network."""
        self.model.load_weights(model)
        objective_network.load_own(self.model, self.task, own)

    @cached_property
    def train(self) -> Packing:
        return pack(self.recipe, self.data.train, self.data.tokenizer, self.objective)

    @cached_property
    def val(self) -> Packing:
        return pack(self.recipe, self.data.val, self.data.tokenizer, self.objective)

    @cached_property
    def plan(self) -> Plan:
        """Which rows each step learns from."""
        return make_plan(self.recipe.train, self.train)

    @cached_property
    def evaluations(self) -> EvaluationSchedule:
        """When the run is evaluated, and on how much."""
        step_tokens = self.train.n_rows * self.train.row_tokens / self.plan.epoch_steps
        return EvaluationSchedule(self.recipe, step_flops(self.model, self.recipe), step_tokens, self.held_out_tokens)

    @property
    def held_out_tokens(self) -> int:
        """Of the held-out text, what an evaluation of all of it reads."""
        return int(self.val.held_out_tokens.sum())

    @cached_property
    def sample_tokens(self) -> int | None:
        """Of these, what an evaluation during training reads; None = all. By the recipe alone: --extend changes nothing of it."""
        return self.evaluations.tokens(self.schedule.horizon)

    @property
    def sample_size(self) -> int:
        """Tokens that an evaluation during training really reads: whole rows."""
        return int(self.val.held_out_tokens[self.val.eval_numbers(self.sample_tokens)].sum())

    def evaluate(self, tokens: int | None = None, each_batch: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Figures of the model on the held-out text, or on `tokens` spread over it, as every evaluation of a run takes them."""
        rows = eval_batch_size(self.recipe, self.setup.micro_batch_size)
        return evaluate(self.task, self.objective, self.val, self.setup, rows, tokens, each_batch, pipeline_of(self).metric_accumulator())

    @property
    def schedule(self) -> TrainingSchedule:
        horizon = horizon_of(self.recipe.train, self.plan.epoch_steps, self.train.n_rows * self.train.row_tokens)
        return TrainingSchedule(self.recipe.schedule, self.recipe.optimizer.lr, horizon)


def training_of(parts: Parts, extensions: Iterable[tuple[int, int]], optimizer: Optimizer) -> Training:
    """What steps through the recipe's schedule; extensions: (begin, steps) of each --extend."""
    recipe, schedule = parts.recipe, parts.schedule
    for begin, steps in extensions:
        schedule = schedule.extended(begin, steps)
    train = recipe.train
    feed = Feed(parts.plan, parts.train, parts.objective.prepare, parts.setup.micro_batch_size)
    return Training(
        parts.task,
        feed,
        optimizer,
        schedule,
        parts.setup,
        seed=train.seed,
        clip=recipe.optimizer.clip,
        tolerance=Tolerance.of(train),
        weights=parts.objective.weights,
    )
