"""The contract of objectives: any cut into micro-batches, padding, determinism by key, targets that are counted, learning by heart.

Each check builds the objective with the smallest model that it can be trained on, and eight rows of the dataset that it reads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.labels import Labels
from mini_tf.data.packing import Shape
from mini_tf.data.store import in_memory
from mini_tf.data.tokenization.tokenizer import Vocabulary
from mini_tf.nn.layers.dropout import Dropout
from mini_tf.nn.model import Model
from mini_tf.nn.weights.objective_network import own_tensors, trained_together
from mini_tf.objectives import LossSums, Objective, ObjectiveSettings
from mini_tf.pipelines import pipeline_of
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.scores import metrics_of
from mini_tf.testing import Case, cases_of
from mini_tf.testing import datasets as of_datasets
from mini_tf.testing.datasets import Row
from mini_tf.testing.rows import FIRST_PLAIN, N_ROWS, VOCABULARY, labels_for, rows_for
from mini_tf.training.evaluation import MetricAccumulator

CLOSE = 1e-6
STEPS = 400
"""In which eight rows are learnt by heart, with room to spare."""


@dataclass(frozen=True)
class TinyObjective:
    """An objective, its task on a model, in float64 and without dropout, and rows for it."""

    objective: Objective
    model: Model
    task: nn.Module
    rows: Rows
    labels: Labels | None

    @property
    def metric_accumulator(self) -> MetricAccumulator | None:
        """What the objective's pipeline makes figures with."""
        recipe = SimpleNamespace(objective=self.objective.settings)
        return pipeline_of(SimpleNamespace(recipe=recipe, labels=self.labels)).metric_accumulator()

    def sums(self, rows: Rows | None = None, training: bool = True) -> tuple[Batch, LossSums]:
        batch = self.objective.prepare(self.rows if rows is None else rows)
        return batch, self.task.train(training)(batch, None)

    def loss(self, parts: Mapping[str, Tensor], counts: Mapping[str, int]) -> Tensor:
        """As training has it: parts of the loss, each a mean, times its weight."""
        weights = self.objective.weights
        return torch.stack([part * (weights.get(name, 1.0) / max(counts[name], 1)) for name, part in parts.items()]).sum()

    def cut(self, size: int) -> list[Rows]:
        return [self.rows.slice(first, min(first + size, N_ROWS)) for first in range(0, N_ROWS, size)]


@dataclass(frozen=True)
class Given:
    """An objective with rows of its dataset, as in `testing.datasets`: eight at least, not all of one length."""

    settings: ObjectiveSettings
    rows: Sequence[Row]

    def prepared(self, lookahead: int = 0) -> tuple[Rows, Labels | None, Vocabulary]:
        with TemporaryDirectory() as folder:
            trial = of_datasets.Trial(self.settings.dataset(), self.rows, Path(folder))
            store = in_memory(trial.dataset.encode(trial.examples, trial.used, trial.labels), trial.used)
            packing, numbers = trial.dataset.packing(store, Shape(64, lookahead, "none")), np.arange(N_ROWS)
            return packing.take(numbers, 0, numbers.astype(np.uint64)), trial.labels, trial.used.target.vocabulary


Tried = ObjectiveSettings | Given
"""An objective, on rows that are made here, or on given ones."""


def trial_of(tried: Tried, d_model: int = 16, dropout: float = 0.0) -> TinyObjective:
    """The case of an objective; `dropout` is set wherever there is dropout."""
    settings = tried.settings if isinstance(tried, Given) else tried
    if isinstance(tried, Given):
        rows, labels, vocabulary = tried.prepared()
        objective = settings.build(vocabulary, labels)
        rows = tried.prepared(objective.lookahead)[0] if objective.lookahead else rows
    else:
        labels, vocabulary = labels_for(settings.DATASET), VOCABULARY
        objective = settings.build(vocabulary, labels)
        rows = rows_for(settings.DATASET, objective.lookahead, objective.needs_word_starts)
    torch.manual_seed(0)
    models: list[Any] = [settings_of("models", word) for word in listing("models")]
    fitting = [one for one in models if settings.direction(one)]
    seeing_most = next((one for one in fitting if "bidirectional" in one.DIRECTIONS), fitting[0])  # so that any position can answer
    model: Model = seeing_most(d_model=d_model, n_layers=1, n_heads=2, init_std=0.3).build(vocabulary.size, max(16, rows.ids.shape[1]))
    objective.add_modules(model)
    task = objective.task(model).double()
    for module in task.modules():
        if isinstance(module, Dropout):
            module.rate = dropout
    return TinyObjective(objective, model, task, rows, labels)


def cuts_change_nothing(tried: Tried) -> None:
    """Any cut into micro-batches gives the same sums, counts, metrics and gradients for the whole step."""
    found: list[dict[str, Any]] = []
    for size in (N_ROWS, 3, 1):
        case = trial_of(tried)
        done = [case.sums(rows) for rows in case.cut(size)]
        counts = _added(batch.counts for batch, _ in done)
        parts = _added(sums.parts for _, sums in done)
        case.loss(parts, counts).backward()
        metrics = _added({f"{name} {n}": pair[n] for name, pair in sums.metrics.items() for n in (0, 1)} for _, sums in done)
        gradients = {name: p.grad for name, p in case.task.named_parameters() if p.grad is not None}
        found.append({"counts": counts, "parts": parts, "metrics": metrics, "gradients": gradients})
    for other in found[1:]:
        for what, whole in found[0].items():
            assert other[what].keys() == whole.keys(), f"{what}: a cut changes which there are"
            for name, value in whole.items():
                assert _near(other[what][name], value), f"{what}: {name} depends on how the batch is cut"


def padding_changes_nothing(tried: Tried) -> None:
    """Padding is no target, is not counted, and what it holds changes nothing."""
    case = trial_of(tried)
    batch = case.objective.prepare(case.rows)
    real = None if batch.inputs.token_positions is None else batch.inputs.token_positions.segments
    assert real is not None, "the batch does not say where its rows are padded"
    assert batch.counts["tokens"] == int((real != 0).sum()), "counts: tokens are all that are read and are not padding"
    assert batch.target_positions is None or bool((real.flatten()[batch.target_positions] != 0).all()), "padding is a target"
    other = replace(_other_padding(case.rows), source=None if case.rows.source is None else _other_padding(case.rows.source))
    for training in (True, False):
        (_, expected), (_, found) = case.sums(training=training), case.sums(other, training)
        for name, part in expected.parts.items():
            assert _near(found.parts[name], part), f"{name} depends on what stands in padding"


def preparing_is_pure(tried: Tried) -> None:
    """`prepare` changes neither rows nor random generators, and a row is prepared by its key, whatever rows are beside it."""
    case = trial_of(tried)
    arrays = {name: value for name, value in vars(case.rows).items() if isinstance(value, np.ndarray)}
    before = {name: array.copy() for name, array in arrays.items()}
    generators = torch.get_rng_state(), repr(np.random.get_state())
    whole, again = case.objective.prepare(case.rows), case.objective.prepare(case.rows)
    single = [case.objective.prepare(rows) for rows in case.cut(1)]
    for name, array in arrays.items():
        assert np.array_equal(array, before[name], equal_nan=array.dtype.kind == "f"), f"prepare changes rows.{name}"
    assert torch.equal(torch.get_rng_state(), generators[0]), "prepare draws from torch's global generator"
    assert repr(np.random.get_state()) == generators[1], "prepare draws from numpy's global generator"
    for what, batches in (("prepared twice", [again]), ("prepared one by one", single)):
        assert torch.equal(whole.inputs.ids, torch.cat([one.inputs.ids for one in batches])), f"{what}, rows have other inputs"
        assert torch.equal(whole.labels, torch.cat([one.labels for one in batches])), f"{what}, rows have other labels"
        assert torch.equal(_targets(whole), torch.cat([_targets(one) for one in batches])), f"{what}, rows have other targets"
        assert whole.counts == _added(one.counts for one in batches), f"{what}, rows have other counts"
    for name, draw in whole.extras.items():
        assert torch.equal(draw, again.extras[name]), f"draws: {name} is another one when prepared twice"


@torch.no_grad()
def parts_are_counted(tried: Tried) -> None:
    """Every part of the loss has a count, which is not 0 where the part is not; figures have the names that the settings declare."""
    case = trial_of(tried)
    settings = case.objective.settings
    declared, accumulator = metrics_of(settings), case.metric_accumulator
    for rows in (case.rows, *case.cut(1)):
        batch, sums = case.sums(rows, training=False)
        assert sums.parts, "there is no part of the loss"
        for name, part in sums.parts.items():
            assert part.dim() == 0, f"{name} is no sum"
            assert name in batch.counts, f"counts: there is none for the part {name} of the loss"
            assert batch.counts[name] or not part, f"counts: {name} is 0, but the part is {float(part):g}"
        assert settings.TOKEN_LOSS is None or settings.TOKEN_LOSS in sums.parts, "TOKEN_LOSS: the loss has no such part"
        assert sums.metrics.keys() <= {*declared}, f"METRICS: does not declare {sorted(sums.metrics.keys() - {*declared})}"
        assert all(float(many) >= 0 for _, many in sums.metrics.values()), "a metric is divided by less than 0"
        assert (sums.outputs is None) or accumulator is not None, "there are outputs, but no metric accumulator"
        if accumulator is not None:
            assert sums.outputs is not None, "there is a metric accumulator, but there are no outputs for it"
            accumulator.add(batch, sums.outputs)
    scores = {} if accumulator is None else accumulator.scores()
    assert all(np.isfinite(score) for score in scores.values()), f"the accumulator gives figures that are not finite: {scores}"
    strange = [name for name in scores if not any(name.startswith(one) if one.endswith(".") else name == one for one in declared)]
    assert not strange, f"METRICS: does not declare {strange}"


def evaluation_is_repeatable(tried: Tried) -> None:
    """In eval nothing is dropped, and the same batch gives the same twice."""
    found: list[LossSums] = []
    for dropout in (0.0, 0.0, 0.5):
        case = trial_of(tried, dropout=dropout)
        torch.manual_seed(len(found))
        found.append(case.sums(training=False)[1])
    for other in found[1:]:
        assert other.parts.keys() == found[0].parts.keys()
        assert all(torch.equal(other.parts[name], part) for name, part in found[0].parts.items()), "in eval the loss is drawn or dropped"
        answers = [one.outputs for one in (other, found[0]) if one.outputs is not None]
        assert not answers or torch.equal(*answers), "in eval answers are drawn or dropped"


def half_precision_keeps_the_loss(tried: Tried) -> None:
    """Under autocast to bf16 losses are summed in full precision, and are about the same."""
    case = trial_of(tried)
    case.task.float()
    for training in (True, False):
        _, exact = case.sums(training=training)
        with torch.autocast("cpu", torch.bfloat16):
            _, rough = case.sums(training=training)
        for name, part in exact.parts.items():
            assert rough.parts[name].dtype == torch.float32, f"{name} is summed in {rough.parts[name].dtype}"
            assert abs(rough.parts[name] - part) <= 0.2 * abs(part) + 0.1, f"{name} is {rough.parts[name]:g} in bf16, but {part:g}"


def rows_are_learnt_by_heart(tried: Tried) -> None:
    """AdamW brings the loss on eight rows below a tenth of what it was, and every parameter has had a gradient on the way."""
    case = trial_of(tried, d_model=32)
    trained = trained_together(case.model, case.task)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=5e-3, weight_decay=0.0)
    untouched, losses = {name for name, _ in trained.named_parameters()}, list[float]()
    while len(losses) <= STEPS and not (len(losses) > 2 and losses[-1] < 0.1 * losses[0]):
        batch, sums = case.sums()
        loss = case.loss(sums.parts, batch.counts)
        losses.append(loss.item())
        loss.backward()
        untouched -= {name for name, p in trained.named_parameters() if p.grad is not None and bool(p.grad.any())}
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < 0.1 * losses[0], f"after {STEPS} steps the loss is {losses[-1]:g}; it was {losses[0]:g}"
    assert not untouched, f"parameters that have no gradient: {sorted(untouched)}"


def task_leaves_the_model_as_it_is(tried: Tried) -> None:
    """To build the task changes no weight of the model, and what it holds besides depends on torch's generator alone."""
    case = trial_of(tried)
    before = {name: tensor.clone() for name, tensor in case.model.weights().items()}
    drawn = []
    for _ in range(2):
        torch.manual_seed(1)
        drawn.append(own_tensors(case.model, case.objective.task(case.model).double()))
    assert case.model.weights().keys() == before.keys(), "the task changes which weights the model has"
    assert all(torch.equal(tensor, before[name]) for name, tensor in case.model.weights().items()), "the task changes the model"
    assert all(torch.equal(tensor, drawn[1][name]) for name, tensor in drawn[0].items()), "the same seed gives other weights"


CONTRACT = (
    cuts_change_nothing,
    padding_changes_nothing,
    preparing_is_pure,
    parts_are_counted,
    evaluation_is_repeatable,
    half_precision_keeps_the_loss,
    rows_are_learnt_by_heart,
    task_leaves_the_model_as_it_is,
)


def _added(found: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for one in found:
        for name, value in one.items():
            total[name] = total[name] + value if name in total else value
    return total


def _near(found: Any, expected: Any) -> bool:
    found, expected = (torch.as_tensor(value).detach().double() for value in (found, expected))
    return bool((found - expected).norm() <= CLOSE * max(1.0, float(expected.norm())))


def _targets(batch: Batch) -> Tensor:
    """Which places are targets: of (B, L), row by row. All, where the batch does not say which."""
    found = torch.ones(batch.inputs.ids.shape, dtype=torch.bool)
    if batch.target_positions is not None:
        found = torch.zeros_like(found).flatten().index_fill(0, batch.target_positions, True).view_as(found)
    return found


def _other_padding(rows: Rows) -> Rows:
    """The same rows, with a token of the text wherever they are padded."""
    assert rows.segments is not None
    return replace(rows, ids=np.where(rows.segments == 0, FIRST_PLAIN + 5, rows.ids))


def cases(settings: ObjectiveSettings, rows: Sequence[Row] | None = None) -> list[Case]:
    """Everything that an objective of these settings must do; rows: of its dataset, where that is not one of minitf's."""
    return cases_of(CONTRACT, settings if rows is None else Given(settings, rows))
