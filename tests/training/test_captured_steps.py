"""Captured steps have the bits of the same steps without a graph: over shapes, micro-batches, skips and loss scales."""

import weakref
from collections.abc import Callable, Hashable
from dataclasses import replace

import numpy as np
import pytest
import torch
from commands import TINY
from tape import Tapes
from test_training_loop import Guess, training_of
from torch import Tensor, nn
from torch.testing import assert_close

from mini_tf.data.batch import Batch, Rows
from mini_tf.nn.cuda_graphs import NotCapturable
from mini_tf.nn.state import State
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import LossSums, Task
from mini_tf.optimizers import OptimizerSettings, adamw, muon
from mini_tf.recipe.reading import read
from mini_tf.system.errors import Unavailable
from mini_tf.training import captured_steps, loop
from mini_tf.training.captured_steps import MOST_GRAPHS, CapturedSteps
from mini_tf.training.divergence import Tolerance
from mini_tf.training.loop import DivergedStep, LossScale, Progress, Report, train
from mini_tf.training.machine.device import Setup
from mini_tf.training.machine.graph_choice import decide_graphs
from mini_tf.training.optimizer import build
from mini_tf.training.training import Training

STEPS = 9
ADAMW = adamw.Settings(weight_decay=0.1)
MUON = muon.Settings(weight_decay=0.1, embedding_lr=0.02)


def all_targets(rows: Rows) -> Batch:
    """All positions are targets, so micro-batches of as many rows have one shape."""
    ids = torch.from_numpy(rows.ids)
    n = ids[:, 1:].numel()
    return Batch(
        Tokens(ids[:, :-1]), ids[:, 1:].flatten(), torch.arange(n), counts={"guess": n, "small": n, "tokens": n}
    )


def of_lengths(n_lengths: int) -> Callable[[Rows], Batch]:
    """Rows that are cut to one of so many lengths."""

    def prepare(rows: Rows) -> Batch:
        length = 1 + int(rows.keys.sum() % n_lengths)
        return all_targets(
            rows.slice(0, len(rows)) if length == rows.ids.shape[1] - 1 else Rows(rows.ids[:, : length + 1], rows.keys)
        )

    return prepare


def training(
    task: nn.Module | None = None,
    micro: int = 8,
    optimizer: OptimizerSettings = ADAMW,
    prepare: Callable[[Rows], Batch] = all_targets,
) -> Training:
    task = Guess(dropout=0.3) if task is None else task
    plain = training_of(task, micro=micro, steps=STEPS, clip=0.5)
    return replace(
        plain, feed=replace(plain.feed, prepare=prepare), optimizer=build(optimizer, task), setup=Setup(graphs=True)
    )


def tensors_of(training: Training) -> dict[str, Tensor]:
    weights = {name: tensor.detach().clone() for name, tensor in training.task.named_parameters()}
    return weights | {
        f"optimizer.{name}": tensor.clone() for name, tensor in training.optimizer.state_tensors().items()
    }


class Steps:
    """Trains captured, or without graphs but with their arithmetic. warnings: lines of the training."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch, self.warnings, self._record = monkeypatch, list[str](), CapturedSteps._record

    def __call__(
        self, training: Training, graphs: int = MOST_GRAPHS, start: Progress | None = None
    ) -> tuple[list[Report], dict[str, Tensor]]:
        """Reports, and weights and optimizer state at the end."""
        self.tapes = Tapes()
        self.monkeypatch.setattr(loop, "CUDAGraphs", lambda device: self.tapes)
        self.monkeypatch.setattr(captured_steps, "MOST_GRAPHS", graphs)
        self.monkeypatch.setattr(CapturedSteps, "_record", self._record if graphs else lambda *_: None)
        reports = list(train(replace(training, warn=self.warnings.append), start, clock=lambda: 0.0))
        return reports, tensors_of(training)

    def check(self, build: Callable[[], Training], start: Progress | None = None) -> list[Report]:
        """The same bits with and without graphs."""
        (eager, expected), (captured, tensors) = self(build(), 0, start), self(build(), MOST_GRAPHS, start)
        assert [str(report) for report in captured] == [str(report) for report in eager]  # nan == nan
        assert_close(tensors, expected, rtol=0, atol=0)
        return captured


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


@pytest.mark.parametrize("optimizer", [ADAMW, MUON], ids=["adamw", "muon"])
@pytest.mark.parametrize(
    ("micro", "passes", "updates"),
    [
        (8, STEPS - 2, STEPS - 2),
        (4, 2 * STEPS - 2, STEPS - 1),
        (3, 3 * STEPS - 4, STEPS - 1),
    ],  # the last in shapes of 2 and 3 rows
    ids=["one", "two", "uneven"],
)
def test_captured_steps_have_the_bits_of_eager_ones(
    micro: int, passes: int, updates: int, optimizer: OptimizerSettings, steps: Steps
) -> None:
    """With dropout, clipping, weight decay and a learning rate that changes."""
    reports = steps.check(lambda: training(micro=micro, optimizer=optimizer))
    assert len({report.lr for report in reports}) > STEPS // 2
    assert steps.tapes.replayed == passes + 2 * updates  # each after a norm
    assert steps.warnings == []


@pytest.mark.parametrize("optimizer", [ADAMW, MUON], ids=["adamw", "muon"])
def test_numbers_in_tensors_change_last_bits_alone(optimizer: OptimizerSettings, steps: Steps) -> None:
    plain = replace(training(micro=4, optimizer=optimizer), setup=Setup())
    reports = list(train(plain))
    captured, tensors = steps(training(micro=4, optimizer=optimizer))
    assert [report.loss for report in captured] == pytest.approx([report.loss for report in reports], rel=1e-5)
    assert_close(tensors, tensors_of(plain), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("stopped_after", [1, 2, 5])
@pytest.mark.parametrize("micro", [8, 4])
def test_a_captured_run_that_is_resumed_has_the_same_bits(stopped_after: int, micro: int, steps: Steps) -> None:
    whole, expected = steps(training(micro=micro))
    first, second = training(micro=micro), training(micro=micro)
    reports = train(first, clock=lambda: 0.0)
    last = [next(reports) for _ in range(stopped_after)][-1]
    second.task.load_state_dict(first.task.state_dict())
    second.optimizer.load(first.optimizer.state_tensors())
    rest, tensors = steps(second, start=Progress.of(last.counters()))
    assert rest == whole[stopped_after:]
    assert_close(tensors, expected, rtol=0, atol=0)


def test_rows_of_several_shapes_have_a_graph_each(steps: Steps) -> None:
    steps.check(lambda: training(micro=1, prepare=of_lengths(3)))
    assert steps.tapes.recorded == 3 + 2  # the norm and the update


def test_more_shapes_than_graphs_are_not_captured(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = steps(training(micro=1, prepare=of_lengths(5)), 0)
    captured = steps(training(micro=1, prepare=of_lengths(5)), 2)
    assert captured[0] == expected[0]
    assert_close(captured[1], expected[1], rtol=0, atol=0)
    assert steps.tapes.recorded == 2 + 2


class Faulty(Guess):
    """Its loss is infinite in the batches that `at_steps` marks."""

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:  # type: ignore[override]
        sums = super().forward(batch, state)
        return LossSums(
            {**sums.parts, "guess": sums.parts["guess"] * batch.extras["factor"].amax()}, sums.metrics, None
        )


def failing_at(*bad_steps: int) -> Callable[[Rows], Batch]:
    calls = iter(range(100))

    def prepare(rows: Rows) -> Batch:
        factor = torch.full((len(rows),), float("inf") if next(calls) in bad_steps else 1.0)
        return replace(all_targets(rows), extras={"factor": factor})

    return prepare


def test_skipped_steps_change_nothing_in_captured_steps(steps: Steps) -> None:
    def build() -> Training:
        return replace(training(Faulty(0.3), prepare=failing_at(4, 5)), tolerance=Tolerance(most_skips=2))

    reports = steps.check(build)
    assert [report.skipped for report in reports] == [step in (4, 5) for step in range(STEPS)]


def test_a_captured_step_that_diverges_has_changed_nothing(steps: Steps) -> None:
    diverging, before = training(Faulty(), prepare=failing_at(6)), training(Faulty(), prepare=failing_at())
    with pytest.raises(DivergedStep, match="step 7: the loss 'guess' is inf, but must be finite"):
        steps(diverging)
    assert steps.tapes.replayed == 5 + 5 + 4  # pass and norm of the last step are not followed by an update
    reports = train(before, clock=lambda: 0.0)
    for _ in range(6):
        next(reports)
    assert_close(tensors_of(diverging), tensors_of(before), rtol=0, atol=0)


def test_fp16_overflows_halve_the_scale_in_captured_steps(steps: Steps) -> None:
    def build() -> Training:
        return replace(training(), setup=Setup(graphs=True, precision="fp16"))

    start = Progress(loss_scale=LossScale(2.0**27, good_steps=0))
    reports = steps.check(build, start)
    overflows = [report.skipped for report in reports]
    assert overflows[0]
    assert not overflows[-1]
    assert reports[-1].loss_scale.scale == 2.0 ** (27 - sum(overflows))


class Staged(Task):
    """Two stages: in the first one only `first` has a gradient, in the second one only `second`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second, self.stage = nn.Linear(6, 6), nn.Linear(6, 6), 0

    @property
    def phase(self) -> Hashable:
        return self.stage

    def refresh(self, seed: int, step: int) -> None:
        self.stage = int(step >= 4)

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        hidden = (self.second if self.stage else self.first)(batch.inputs.ids.float() / 10)
        return LossSums({"guess": hidden.square().sum() + self.stage}, {}, None)


@pytest.mark.parametrize("micro", [8, 4])
def test_each_phase_has_a_graph_and_its_own_gradients(micro: int, steps: Steps) -> None:
    reports = steps.check(lambda: training(Staged(), micro))
    assert reports[3].metrics == {}
    phases, norms, updates = 2, 2, 2
    assert steps.tapes.recorded == phases + norms + updates


def item(x: Tensor) -> Tensor:
    return x * max(1.0, x.detach().amax().item())


def branch(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x


def mask(x: Tensor) -> Tensor:
    return x[x > 0]


def constant(x: Tensor) -> Tensor:
    return x * torch.tensor([2.0])


@pytest.mark.parametrize("wait", [item, branch, mask, constant])
def test_a_model_that_waits_for_the_device_trains_without_graphs(
    wait: Callable[[Tensor], Tensor], steps: Steps
) -> None:
    class Waits(Guess):
        def forward(self, batch: Batch, state: State | None = None) -> LossSums:  # type: ignore[override]
            sums = super().forward(batch, state)
            return LossSums(
                {**sums.parts, "small": wait(self.embedding(batch.inputs.ids)).square().sum()}, sums.metrics, None
            )

    steps.check(lambda: training(Waits(0.3), micro=4))
    [line] = steps.warnings
    assert line.startswith("CUDA graphs are off, steps take longer: ")
    assert steps.tapes.recorded == 0


def test_a_pass_that_waits_is_freed_before_it_is_repeated(steps: Steps) -> None:
    made, alive = list["weakref.ref[Tensor]"](), list[int]()

    class Waits(Guess):
        def forward(self, batch: Batch, state: State | None = None) -> LossSums:  # type: ignore[override]
            alive.append(sum(activations() is not None for activations in made))
            sums, activations = super().forward(batch, state), self.embedding(batch.inputs.ids)
            made.append(weakref.ref(activations))
            return LossSums({**sums.parts, "small": item(activations).square().sum()}, sums.metrics, None)

    steps(training(Waits()))
    assert alive == [0] * (STEPS + 1)


@pytest.mark.parametrize("refused", range(4))
def test_a_graph_that_cannot_be_recorded_changes_no_bit(
    refused: int, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first shape, of the norm, of the update or of a second shape."""
    record, calls = Tapes.record, iter(range(2 * STEPS))

    def refusing(self: Tapes, function: Callable[[], Tensor]) -> object:
        recorded = record(self, function)
        if next(calls) == refused:
            raise NotCapturable("out of memory")
        return recorded

    monkeypatch.setattr(Tapes, "record", refusing)
    steps.check(lambda: training(micro=3))
    assert steps.warnings == ["CUDA graphs are off, steps take longer: out of memory"]


def test_what_the_reader_of_captured_reports_does_shifts_nothing(steps: Steps) -> None:
    quiet, expected = steps(training(micro=4))
    busy = training(micro=4)
    reports = []
    for report in train(busy, clock=lambda: 0.0):
        reports.append(report)
        busy.task.eval()
        torch.randn(100)
        np.random.default_rng(0).random(3)
    assert reports == quiet
    assert_close(tensors_of(busy), expected, rtol=0, atol=0)


CUDA = Setup(torch.device("cuda:0"))


@pytest.mark.parametrize(
    ("setup", "words", "processes", "on", "reason"),
    [
        (CUDA, (), 1, True, "no launch of single kernels"),
        (CUDA, ("optimizer.kind=muon",), 1, True, "no launch of single kernels"),
        (CUDA, ("runtime.graphs=true",), 1, True, "set in the recipe"),
        (CUDA, ("runtime.graphs=false",), 1, False, "set in the recipe"),
        (CUDA, (), 2, False, "2 processes exchange gradients in a step"),
        (CUDA, ("runtime.reduce=tree", "train.micro_batch_size=4"), 1, False, "runtime.reduce is tree"),
        (Setup(), (), 1, False, None),
        (Setup(torch.device("mps")), (), 1, False, None),
    ],
)
def test_graphs_are_on_where_steps_can_be_captured(
    setup: Setup, words: tuple[str, ...], processes: int, on: bool, reason: str | None
) -> None:
    decided = decide_graphs(setup, read(TINY, words).recipe, processes)
    assert (decided.graphs, decided.reasons.get("graphs")) == (on, reason)
    assert decided.settings.get("graphs") == (on if setup is CUDA else None)
    assert ("CUDA graphs" in decided.describe()) == (setup is CUDA)


def test_graphs_that_a_recipe_wants_and_that_cannot_be_are_refused() -> None:
    with pytest.raises(Unavailable, match=r"runtime\.graphs: CUDA graphs need a GPU of NVIDIA, the device is cpu"):
        decide_graphs(Setup(), read(TINY, ("runtime.graphs=true",)).recipe, 1)
    recipe = read(TINY, ("runtime.graphs=true",)).recipe
    stream = recipe.model_copy(update={"train": recipe.train.model_copy(update={"stream": True})})
    with pytest.raises(Unavailable, match=r"runtime\.graphs: train\.stream hands a state from row to row"):
        decide_graphs(CUDA, stream, 1)


def test_an_optimizer_that_declares_nothing_is_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adamw.Settings, "CAPTURABLE", False)
    decided = decide_graphs(CUDA, read(TINY).recipe, 1)
    assert (decided.graphs, decided.reasons["graphs"]) == (False, "the optimizer adamw is not capturable")
