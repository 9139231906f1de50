"""The components of a run before its first step, and the training loop over them."""

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
from mini_tf.training.due import Evaluations, step_work
from mini_tf.training.evaluation import evaluate, pack, rows_at_once
from mini_tf.training.feed import Feed
from mini_tf.training.loop import Training
from mini_tf.training.machine.device import Setup
from mini_tf.training.plan import Plan, plan_of
from mini_tf.training.schedule import TrainingSchedule, horizon_of


@dataclass(frozen=True)
class Parts:
    """All that is built from recipe and data before the first step."""

    recipe: Recipe
    data: TokenizedData
    objective: Objective
    setup: Setup
    model: Model
    task: nn.Module
    taken: LoadedTensors | None = None
    """The tensors loaded from the run of model.init_from; None also if the run has weights of its own."""
    whole: Sequence[str] | None = None
    """Fully trainable parameters beside an adapter."""

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

    @cached_property
    def trainable(self) -> nn.Module:
        """What the optimizer updates: the model, and the objective's own network if there is one."""
        return objective_network.trained_module(self.model, self.task)

    def objective_tensors(self) -> dict[str, Tensor]:
        """The tensors of the objective's own network, which is not part of the model; no copies."""
        return objective_network.objective_tensors(self.model, self.task)

    def load(self, model: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
        """Load weights into the model and the objective's own network."""
        self.model.load_weights(model)
        objective_network.load_objective(self.model, self.task, own)

    @cached_property
    def train(self) -> Packing:
        return pack(self.recipe, self.data.train, self.data.tokenizer, self.objective)

    @cached_property
    def val(self) -> Packing:
        return pack(self.recipe, self.data.val, self.data.tokenizer, self.objective)

    @cached_property
    def plan(self) -> Plan:
        """Which rows each step trains on."""
        return plan_of(self.recipe.train, self.train)

    @cached_property
    def evaluations(self) -> Evaluations:
        """When the run is evaluated, and on how many tokens."""
        step_tokens = self.train.n_rows * self.train.row_tokens / self.plan.epoch_steps
        return Evaluations(self.recipe, step_work(self.model, self.recipe), step_tokens, self.held_out_tokens)

    @property
    def held_out_tokens(self) -> int:
        """All validation tokens."""
        return int(self.val.eval_row_tokens.sum())

    @cached_property
    def sample_tokens(self) -> int | None:
        """Validation tokens of an evaluation during training; None = all. --extend does not change it."""
        return self.evaluations.tokens(self.schedule.horizon)

    @property
    def sample_size(self) -> int:
        """Tokens that an evaluation during training really uses: whole rows."""
        return int(self.val.eval_row_tokens[self.val.eval_row_indices(self.sample_tokens)].sum())

    def evaluate(self, tokens: int | None = None, each_batch: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Metrics on the validation data, or on a sample of `tokens`."""
        rows = rows_at_once(self.recipe, self.setup.micro_batch_size)
        return evaluate(self.task, self.objective, self.val, self.setup, rows, tokens, each_batch, pipeline_of(self).metric_accumulator())

    @property
    def schedule(self) -> TrainingSchedule:
        horizon = horizon_of(self.recipe.train, self.plan.epoch_steps, self.train.n_rows * self.train.row_tokens)
        return TrainingSchedule(self.recipe.schedule, self.recipe.optimizer.lr, horizon)


def training_of(parts: Parts, extensions: Iterable[tuple[int, int]], optimizer: Optimizer) -> Training:
    """The training loop; extensions: (begin, steps) of each --extend."""
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
