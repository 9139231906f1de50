"""The loop: the same result however a batch is cut, wherever a run is interrupted, whatever its reader does
meanwhile.
"""

import itertools
import json
import math
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from mini_tf.data.batch import Batch, Rows
from mini_tf.nn.mixer import Mixer
from mini_tf.nn.state import State, flatten, unflatten
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import Task
from mini_tf.optimizers import Parameter, adamw
from mini_tf.parallel.group import ProcessGroup
from mini_tf.schedules import cosine, linear
from mini_tf.system.errors import Diverged, RunFault, StorageFault
from mini_tf.system.processes import ProcessRank
from mini_tf.system.seeds import seed_of
from mini_tf.training import loop
from mini_tf.training.divergence import Tolerance, gradient_problem, ranges
from mini_tf.training.feed import Feed
from mini_tf.training.loop import DivergedStep, LossScale, Progress, Report, train
from mini_tf.training.machine import memory
from mini_tf.training.machine.device import Setup
from mini_tf.training.machine.memory import fitting_micro_batch, rows_that_fit
from mini_tf.training.optimizer import build
from mini_tf.training.plan import RowPlan
from mini_tf.training.schedule import Horizon, TrainingSchedule
from mini_tf.training.training import Training

VOCABULARY, CONTEXT, N_ROWS = 11, 6, 20
TEXT = np.random.default_rng(0).integers(1, VOCABULARY, N_ROWS * CONTEXT + 1)


@dataclass
class LossSums:
    parts: dict[str, Tensor]
    metrics: dict[str, tuple[Tensor, Tensor | int]] = field(default_factory=dict)
    state: State | None = None


class Windows:
    """Windows of a fixed text, with one token of lookahead; two windows a document, or none known."""

    def __init__(self, documents: bool = False) -> None:
        self.has_documents = documents

    def documents(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        return np.unique(rows // 2) if self.has_documents else np.empty(0, np.int64)

    def names(self, rows: np.ndarray) -> list[str]:
        return []

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        return Rows(np.stack([TEXT[row * CONTEXT : (row + 1) * CONTEXT + 1] for row in rows]), keys)


def ask_unevenly(rows: Rows) -> Batch:
    """Asks for some positions only, drawn from each row's key, so that micro-batches have unequal counts."""
    asked = np.stack([np.random.default_rng(int(key)).random(CONTEXT) < 0.4 for key in rows.keys])
    at = torch.from_numpy(np.flatnonzero(asked))
    ids = torch.from_numpy(rows.ids)
    labels = ids[:, 1:].flatten()[at]
    return Batch(
        Tokens(ids[:, :-1]), labels, at, counts={"guess": len(labels), "small": asked.size, "tokens": asked.size}
    )


class Guess(nn.Module):
    """Embeds, mixes within the row, guesses; the second part of its loss keeps embeddings small."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.mix = nn.Linear(8, 8)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(8, VOCABULARY)

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        x = self.embedding(batch.inputs.ids)
        hidden = self.dropout(torch.tanh(self.mix(x + x.mean(1, keepdim=True))))
        assert batch.target_positions is not None
        scores = self.head(hidden.flatten(0, 1)[batch.target_positions])
        loss = nn.functional.cross_entropy(scores, batch.labels, reduction="sum")
        right = (scores.argmax(-1) == batch.labels).sum()
        return LossSums({"guess": loss, "small": x.square().mean(-1).sum()}, {"accuracy": (right, len(batch.labels))})


def training_of(
    task: nn.Module, *, micro: int = 8, steps: int = 6, lr: float = 1e-2, clip: float = 0.0, stream: bool = False
) -> Training:
    feed = Feed(RowPlan(N_ROWS, 8, 5, stream), Windows(), ask_unevenly, micro)
    schedule = TrainingSchedule(cosine.Settings(warmup=2), lr, Horizon(steps=steps))
    return Training(
        task, feed, build(adamw.Settings(), task), schedule, Setup(), seed=5, clip=clip, weights={"small": 0.3}
    )


def weights_of(task: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in task.parameters()]


def rest_of(first: Training, last: Report, second: Training) -> list[Report]:
    """The reports of a training that goes on where another one was stopped."""
    second.task.load_state_dict(first.task.state_dict())
    second.optimizer.load(first.optimizer.state_tensors())
    return list(train(second, Progress.of(json.loads(json.dumps(last.counters())))))


def after(training: Training, n: int) -> Report:
    """The report of its n-th step."""
    return list(itertools.islice(train(training), n))[-1]


def first_gradients(task: nn.Module, micro: int) -> tuple[Report, list[Tensor]]:
    """The gradients of the first step, caught where the optimizer would use them."""
    training = training_of(task, micro=micro)
    caught: list[Tensor] = []
    training.optimizer.step = lambda lr, factor=1.0: caught.extend(p.grad.clone() for p in task.parameters())  # type: ignore[method-assign]
    return next(train(training)), caught


@pytest.mark.parametrize("micro", [1, 4])
def test_micro_batches_change_neither_the_loss_nor_the_gradient(micro: int) -> None:
    (whole, expected), (cut, found) = first_gradients(Guess(), 8), first_gradients(Guess(), micro)
    assert cut.loss == pytest.approx(whole.loss, abs=1e-6)
    assert cut.tokens == whole.tokens == 8 * CONTEXT
    assert cut.metrics == whole.metrics
    for a, b in zip(found, expected, strict=True):
        assert float((a - b).norm()) <= 1e-5 * float(b.norm())


def test_twenty_steps_in_micro_batches_agree_in_float64() -> None:
    tasks = [Guess().double(), Guess().double()]
    for task, size in zip(tasks, (8, 2), strict=True):
        reports = list(train(training_of(task, micro=size, steps=20, clip=0.5)))
        assert len(reports) == 20
    for a, b in zip(*map(weights_of, tasks), strict=True):
        assert_close(a, b, rtol=0, atol=1e-10)


def test_the_loss_is_the_weighted_sum_of_parts_divided_by_the_counts_of_the_step() -> None:
    task = Guess()
    training = training_of(task, micro=2)
    batches = training.feed.micro_batches(0)
    with torch.no_grad():
        task.head.bias[batches[0].labels[0]] += 9  # it says one thing alone, which is sometimes right
    sums = [task(batch) for batch in batches]
    n_asked = sum(len(batch.labels) for batch in batches)
    guess = sum(float(s.parts["guess"].detach()) for s in sums) / n_asked
    small = sum(float(s.parts["small"].detach()) for s in sums) / (8 * CONTEXT)
    right = sum(int(s.metrics["accuracy"][0]) for s in sums)
    assert 0 < right < n_asked
    report = next(train(training))
    assert report.losses == pytest.approx({"guess": guess, "small": small}, abs=1e-6)
    assert report.loss == pytest.approx(guess + 0.3 * small, abs=1e-6)
    assert report.metrics == {"accuracy": right / n_asked}


def test_the_gradient_is_that_of_the_weighted_sum_of_parts() -> None:
    _, found = first_gradients(Guess(), micro=2)
    task = Guess()
    sums = [task(batch) for batch in training_of(task, micro=2).feed.micro_batches(0)]
    n_asked = sum(many for s in sums for _, many in s.metrics.values())
    loss = sum(s.parts["guess"] for s in sums) / n_asked + 0.3 * sum(s.parts["small"] for s in sums) / (8 * CONTEXT)
    loss.backward()
    for gradient, p in zip(found, task.parameters(), strict=True):
        assert_close(gradient, p.grad, rtol=1e-4, atol=1e-6)


def test_training_learns_and_reports_every_step() -> None:
    reports = list(train(training_of(Guess(), steps=150, lr=5e-2)))
    assert [report.step for report in reports] == list(range(1, 151))
    assert reports[-1].tokens == 150 * 8 * CONTEXT
    assert reports[-1].losses["guess"] < 0.85 * reports[0].losses["guess"]
    assert [report.lr for report in reports[:3]] == [0.025, 0.05, 0.05]


@pytest.mark.parametrize("stopped_after", [1, 2, 5])
def test_a_run_that_stops_and_goes_on_ends_with_the_same_bits(stopped_after: int) -> None:
    whole = training_of(Guess(dropout=0.3), micro=4)
    reports = list(train(whole))
    first, second = (training_of(Guess(dropout=0.3), micro=4) for _ in range(2))
    rest = rest_of(first, after(first, stopped_after), second)
    assert [(r.step, r.loss, r.tokens) for r in rest] == [(r.step, r.loss, r.tokens) for r in reports[stopped_after:]]
    for a, b in zip(weights_of(whole.task), weights_of(second.task), strict=True):
        assert torch.equal(a, b)


def test_what_the_reader_does_between_reports_shifts_nothing() -> None:
    def read(reports: Iterator[Report], task: nn.Module, disturb: bool) -> list[float]:
        losses = []
        for report in reports:
            losses.append(report.loss)
            if disturb:
                task.eval()
                torch.randn(1000)
        return losses

    quiet, busy = Guess(dropout=0.5), Guess(dropout=0.5)
    assert read(train(training_of(quiet)), quiet, False) == read(train(training_of(busy)), busy, True)


class Dropped(Guess):
    """Notes what dropout leaves of the same hundred ones in every call."""

    def __init__(self) -> None:
        super().__init__(dropout=0.5)
        self.left: list[tuple[float, ...]] = []

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        self.left.append(tuple(self.dropout(torch.ones(100)).tolist()))
        return super().forward(batch, state)


def test_every_micro_batch_of_every_step_of_every_seed_drops_something_else() -> None:
    left: list[tuple[float, ...]] = []
    for seed in (5, 6):
        task = Dropped()
        list(train(replace(training_of(task, micro=2, steps=3), seed=seed)))
        left += task.left
    assert len(left) == 2 * 3 * 4
    assert len(set(left)) == len(left)


class Poison(Guess):
    """Gives a loss or a gradient that is not finite in some of its calls, from 1; four are one step of micro-batches of
    two.
    """

    def __init__(self, where: str, calls: Collection[int] = (10,)) -> None:
        super().__init__()
        self.where, self.poisoned, self.calls = where, calls, 0

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        self.calls += 1
        sums = super().forward(batch, state)
        if self.calls in self.poisoned and self.where == "loss":
            sums.parts["guess"] = sums.parts["guess"] * float("nan")
        if self.calls in self.poisoned and self.where == "gradient":
            zero = self.head.bias.sum() * 0
            sums.parts["small"] = sums.parts["small"] + torch.sqrt(zero) * 0  # 0, whose slope is not a number
        return sums


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("loss", r"step 3: the loss 'guess' is nan, but must be finite \(micro-batch 2 of 4, rows [\d, -]+\)"),
        ("gradient", r"step 3: the gradient norm is nan \(in head\.bias\), but must be finite \(rows [\d, -]+\)"),
    ],
)
def test_training_stops_before_a_loss_or_gradient_that_is_not_finite_reaches_the_weights(
    where: str, message: str
) -> None:
    task = Poison(where)
    training = training_of(task, micro=2)
    reports = train(training)
    for _ in range(2):
        next(reports)
    before, moments = weights_of(task), {k: v.clone() for k, v in training.optimizer.state_tensors().items()}
    with pytest.raises(Diverged, match=message) as fault:
        next(reports)
    assert fault.value.exit_code == 7
    assert "optimizer.lr" in str(fault.value.hint)
    assert all(torch.equal(a, b) for a, b in zip(before, weights_of(task), strict=True))
    assert all(torch.equal(tensor, moments[name]) for name, tensor in training.optimizer.state_tensors().items())


@pytest.mark.parametrize("documents", [False, True])
def test_a_fault_names_the_rows_of_the_plan_or_their_documents_from_1(documents: bool) -> None:
    training = training_of(Poison("loss"), micro=2)
    training = replace(training, feed=replace(training.feed, packing=Windows(documents)))
    with pytest.raises(DivergedStep) as fault:
        list(train(training))
    rows = training.feed.plan.rows(2).rows[2:4]
    assert fault.value.data.rows == [row + 1 for row in rows]
    assert fault.value.data.documents == (sorted({row // 2 + 1 for row in rows.tolist()}) if documents else [])
    assert (fault.value.at.step, fault.value.report.step, fault.value.problem.micro) == (2, 3, 1)
    assert str(fault.value).endswith(f"{fault.value.data})")
    assert str(fault.value.data).startswith("documents " if documents else "rows ")


def test_of_several_bad_micro_batches_the_first_is_told() -> None:
    with pytest.raises(DivergedStep, match=r"step 3: .* \(micro-batch 2 of 4, ") as fault:
        list(train(training_of(Poison("loss", [10, 11, 12]), micro=2)))
    assert fault.value.problem.micro == 1


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_step_that_may_be_skipped_leaves_no_trace_but_its_count(where: str) -> None:
    task = Poison(where)
    training = replace(training_of(task, micro=2), tolerance=Tolerance(most_skips=1))
    reports = train(training)
    good = list(itertools.islice(reports, 2))
    before, moments = weights_of(task), {k: v.clone() for k, v in training.optimizer.state_tensors().items()}
    bad = next(reports)
    assert bad.skipped
    assert (bad.skips, bad.skips_in_a_row) == (1, 1)
    assert bad.problem is not None
    assert math.isnan(bad.loss) == (where == "loss")  # the raw value
    assert math.isnan(bad.grad_norm)
    assert all(torch.equal(a, b) for a, b in zip(before, weights_of(task), strict=True))
    assert all(torch.equal(tensor, moments[name]) for name, tensor in training.optimizer.state_tensors().items())
    rest = list(reports)
    assert [report.skipped for report in good + rest] == [False] * 5
    assert [(report.skips, report.skips_in_a_row) for report in rest] == [(1, 0)] * 3
    assert not torch.equal(before[0], weights_of(task)[0])
    assert all(p.isfinite().all() for p in task.parameters())


def test_more_skips_in_a_row_than_are_borne_end_training_and_others_do_not() -> None:
    def steps_of(*bad: int) -> list[int]:
        return [4 * step + 1 for step in bad]

    scattered = replace(training_of(Poison("loss", steps_of(0, 1, 3, 5)), micro=2), tolerance=Tolerance(most_skips=2))
    assert [report.skips for report in train(scattered)] == [1, 2, 2, 3, 3, 4]
    in_a_row = replace(training_of(Poison("loss", steps_of(1, 2, 3)), micro=2), tolerance=Tolerance(most_skips=2))
    with pytest.raises(DivergedStep, match=r"^step 4, after 2 skipped in a row: the loss 'guess' is nan"):
        list(train(in_a_row))


@pytest.mark.parametrize("stopped_after", [2, 3, 4])
def test_skips_are_counted_over_an_interruption(stopped_after: int) -> None:
    def training_from(call: int) -> Training:
        task = Poison("loss", [9, 13, 17])
        task.calls = call
        return replace(training_of(task, micro=2), tolerance=Tolerance(most_skips=2))

    first = training_from(0)
    last = after(first, stopped_after)
    with pytest.raises(DivergedStep, match=r"^step 5, after 2 skipped"):
        rest_of(first, last, training_from(4 * stopped_after))


def test_a_loss_above_what_is_borne_ends_training_before_the_step_and_is_never_skipped() -> None:
    task = Guess()
    first = next(train(training_of(Guess())))
    training = replace(training_of(task), tolerance=Tolerance(most_skips=5, stop_above=first.loss - 0.01))
    before = weights_of(task)
    with pytest.raises(DivergedStep, match=rf"^step 1: the loss is {first.loss:.6g}, but train\.stop_above is "):
        next(train(training))
    assert all(torch.equal(a, b) for a, b in zip(before, weights_of(task), strict=True))
    borne = replace(training_of(Guess()), tolerance=Tolerance(stop_above=first.loss))
    assert next(train(borne)).loss == first.loss


class Noted(Mixer):
    """A mixer that notes when it was refreshed, which makes states invalid at step `redraw`."""

    def __init__(self, redraw: int | None = None) -> None:
        super().__init__()
        self.refreshed: list[tuple[int, int]] = []
        self.redraw = redraw

    def refresh(self, seed: int, step: int) -> bool:
        self.refreshed.append((seed, step))
        return step == self.redraw


def test_every_mixer_is_refreshed_once_a_step_from_a_seed_of_its_own() -> None:
    task = Guess()
    mixers = [Noted(), Noted()]
    task.layers = nn.ModuleList(mixers)
    list(train(training_of(task, micro=2, steps=3)))
    for i, mixer in enumerate(mixers):
        assert mixer.refreshed == [(seed_of(5, "refresh", i), step) for step in range(3)]


def test_the_clock_ends_a_run_that_is_measured_in_time() -> None:
    ticks = iter(float(t) for t in itertools.count())
    training = replace(
        training_of(Guess()), schedule=TrainingSchedule(linear.Settings(warmup=0), 1.0, Horizon(seconds=10.0))
    )
    reports = list(train(training, clock=lambda: next(ticks)))
    assert [report.seconds for report in reports] == [2, 4, 6, 8, 10]
    assert [report.lr for report in reports][1:] == pytest.approx([0.7, 0.5, 0.3, 0.1])
    continued = list(train(training, Progress(step=3, seconds=6.0), clock=lambda: next(ticks)))
    assert [report.step for report in continued] == [4, 5]


class Remember(nn.Module):
    """Learns from a running sum over all tokens that its row has ever seen."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.value = nn.Embedding(VOCABULARY, 3)
        self.seen: list[Tensor] = []

    def start(self, rows: int) -> State:
        return {"total": torch.zeros(rows)}

    def carry(self, state: State) -> State:
        return state

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        assert state is not None
        total = state["total"]
        assert isinstance(total, Tensor)
        assert not total.requires_grad
        total = total + batch.inputs.ids.sum(1) + 0 * self.value(batch.inputs.ids).sum((1, 2))
        self.seen.append(total.detach())
        return LossSums({"guess": total.sum() * 1e-6}, state={"total": total})


def read_in(training: Training, steps: Iterable[int]) -> list[int]:
    """The sums of the tokens that each row of a stream reads in these steps."""
    windows = [[(row + step) % N_ROWS for step in steps] for row in training.feed.plan.rows(0).rows.tolist()]
    return [sum(int(TEXT[w * CONTEXT : (w + 1) * CONTEXT].sum()) for w in of_row) for of_row in windows]


def seen_last(task: Remember) -> list[int]:
    return [int(total) for total in torch.cat(task.seen[-2:])]


def test_a_stream_carries_the_state_of_each_row_detached_from_step_to_step() -> None:
    task = Remember()
    training = training_of(task, micro=4, steps=5, stream=True)
    list(train(training))
    assert seen_last(task) == read_in(training, range(5))


@pytest.mark.parametrize("interrupted", [None, 2, 3])
def test_a_stream_starts_anew_where_a_mixer_makes_its_states_invalid(interrupted: int | None) -> None:
    """Also if the run was interrupted there."""
    task = Remember()
    task.mixer = Noted(redraw=3)
    training = training_of(task, micro=4, steps=5, stream=True)
    if interrupted is None:
        list(train(training))
    else:
        list(train(training, after(training, interrupted)))
    assert seen_last(task) == read_in(training, (3, 4))


def test_a_stream_goes_on_from_its_saved_state_and_refuses_another_micro_batch() -> None:
    whole, halved = Remember(), Remember()
    list(train(training_of(whole, micro=4, steps=5, stream=True)))
    last = after(training_of(halved, micro=4, steps=5, stream=True), 3)
    progress = Progress.of(last.counters(), unflatten(flatten(last.state)))
    list(train(training_of(halved, micro=4, steps=5, stream=True), progress))
    assert all(torch.equal(a, b) for a, b in zip(whole.seen[-2:], halved.seen[-2:], strict=True))
    with pytest.raises(RunFault, match=r"saved in micro-batches of 4 rows; train\.micro_batch_size is 2") as fault:
        next(train(training_of(halved, micro=2, steps=5, stream=True), progress))
    assert fault.value.hint == "train.micro_batch_size=4"


@pytest.mark.parametrize("step", [1, 3])
def test_a_stream_that_began_cannot_go_on_from_nothing(step: int) -> None:
    with pytest.raises(RunFault, match=f"^the stream state after step {step} is missing$"):
        next(train(training_of(Remember(), micro=4, steps=5, stream=True), Progress(step=step)))


def test_a_stream_goes_on_after_a_skipped_step_from_the_state_before_it() -> None:
    class Forgetful(Remember):
        """Its third step is not a number, nor is what it remembers then."""

        def forward(self, batch: Batch, state: State | None = None) -> LossSums:
            sums = super().forward(batch, state)
            bad = float("nan") if len(self.seen) in (5, 6) else 1.0
            assert sums.state is not None
            return LossSums({"guess": sums.parts["guess"] * bad}, state={"total": sums.state["total"] * bad})

    task = Forgetful()
    training = replace(training_of(task, micro=4, steps=4, stream=True), tolerance=Tolerance(most_skips=1))
    assert [report.skipped for report in train(training)] == [False, False, True, False]
    assert seen_last(task) == read_in(training, (0, 1, 3))


def test_a_stream_remembers_what_it_read_in_a_step_whose_gradient_overflowed() -> None:
    """Nothing is wrong with what followed from it."""

    class Overflowing(Remember):
        """The gradient of its third step is too large for its scale."""

        def forward(self, batch: Batch, state: State | None = None) -> LossSums:
            sums = super().forward(batch, state)
            zero = self.value.weight.sum() * 0
            return LossSums(
                {"guess": sums.parts["guess"] + (torch.sqrt(zero) if len(self.seen) in (5, 6) else zero)},
                state=sums.state,
            )

    task = Overflowing()
    training = training_of(task, micro=4, steps=4, stream=True)
    reports = list(train(replace(training, setup=Setup(precision="fp16"))))
    assert [report.skipped for report in reports] == [False, False, True, False]
    assert seen_last(task) == read_in(training, range(4))


def test_an_fp16_overflow_leaves_the_step_out_and_halves_the_scale() -> None:
    task = Poison("gradient")
    training = replace(training_of(task, micro=8, steps=12), setup=Setup(precision="fp16"))
    reports = train(training)
    good = list(itertools.islice(reports, 9))
    before = weights_of(task)
    bad = next(reports)
    assert not any(report.skipped for report in good)
    assert bad.skipped
    assert (bad.step, bad.loss_scale) == (10, LossScale(2.0**15))
    assert all(torch.equal(a, b) for a, b in zip(before, weights_of(task), strict=True))
    assert (bad.problem, bad.skips, bad.skips_in_a_row) == (None, 1, 0)  # ordinary: it is counted, and never ends a run
    assert not next(reports).skipped


def test_a_step_that_is_left_out_for_its_loss_says_nothing_about_the_scale() -> None:
    training = replace(
        training_of(Poison("loss", [3]), steps=4), setup=Setup(precision="fp16"), tolerance=Tolerance(most_skips=1)
    )
    assert [report.loss_scale.good_steps for report in train(training)] == [1, 2, 2, 3]


def test_the_loss_scale_is_as_it_was_after_an_interruption() -> None:
    def training_from(calls: int) -> Training:
        task = Poison("gradient", [3, 7])
        task.calls = calls
        return replace(training_of(task, micro=8, steps=9), setup=Setup(precision="fp16"))

    whole = [(report.loss_scale, report.skips) for report in train(training_from(0))]
    assert whole[4:7] == [(LossScale(2.0**15, 2), 1), (LossScale(2.0**15, 3), 1), (LossScale(2.0**14, 0), 2)]
    for stopped_after in (3, 6):
        first, second = training_from(0), training_from(stopped_after)
        rest = rest_of(first, after(first, stopped_after), second)
        assert [(report.loss_scale, report.skips) for report in rest] == whole[stopped_after:]


def test_fp16_whose_scale_can_shrink_no_more_diverges() -> None:
    training = replace(training_of(Poison("gradient", [1])), setup=Setup(precision="fp16"))
    with pytest.raises(DivergedStep, match="gradient norm is nan"):
        next(train(training, Progress(loss_scale=LossScale(1.0))))


def test_the_loss_scale_does_not_change_what_is_learnt() -> None:
    plain, scaled = Guess(), Guess()
    a = next(train(training_of(plain)))
    b = next(train(replace(training_of(scaled), setup=Setup(precision="fp16"))))
    assert b.loss == pytest.approx(a.loss, rel=1e-2)
    assert b.grad_norm == pytest.approx(a.grad_norm, rel=1e-2)


class Linear(nn.Module):
    """Its loss is a weight for each token that is read, so that its gradient is how often each of them is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(VOCABULARY))

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        return LossSums({"guess": self.weight[batch.inputs.ids].sum()})


class Descent(adamw.AdamW):
    """Steps along the gradient itself: unlike Adam's, such a step is as large as the gradient is."""

    def update(self, parameters: Mapping[str, Parameter], lr: float) -> None:
        for p in parameters.values():
            p.tensor.sub_(lr * p.grad)


@pytest.mark.parametrize("scale", [1.0, 2.0**10, 2.0**16])
@pytest.mark.parametrize("clip", [0.0, 0.25])
def test_a_step_of_fp16_is_that_of_the_plain_gradient_whatever_the_scale(scale: float, clip: float) -> None:
    task = Linear()
    training = replace(training_of(task, micro=2, steps=1, clip=clip), setup=Setup(precision="fp16"))
    training = replace(
        training, optimizer=Descent(adamw.Settings(), {name: Parameter(p) for name, p in task.named_parameters()})
    )
    batches = training.feed.micro_batches(0)
    read = torch.bincount(torch.cat([batch.inputs.ids.flatten() for batch in batches]), minlength=VOCABULARY)
    gradient = read / sum(batch.counts["guess"] for batch in batches)
    assert float(gradient.norm()) > 0.25
    report = next(train(training, Progress(loss_scale=LossScale(scale))))
    assert report.grad_norm == pytest.approx(float(gradient.norm()), rel=1e-5)
    clipped = gradient * (0.25 / gradient.norm()) if clip else gradient
    assert_close(task.weight.detach(), -report.lr * clipped, rtol=1e-4, atol=0)


def test_the_loss_scale_doubles_after_2000_good_steps() -> None:
    scale = LossScale(4.0)
    for _ in range(1999):
        scale = scale.after(overflow=False)
    assert scale.scale == 4.0
    assert scale.after(overflow=False) == LossScale(8.0, 0)
    assert scale.after(overflow=True) == LossScale(2.0, 0)


def test_an_auto_micro_batch_takes_all_rows_where_memory_suffices_and_fewer_where_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = training_of(Guess(), micro=1)
    size, reason = fitting_micro_batch(training.task, training.feed, Setup())
    assert size == 8
    assert reason.startswith("activations of 8 rows take 0 MiB; ")
    monkeypatch.setattr(memory, "free_bytes", lambda device: 3 << 30)
    assert fitting_micro_batch(training.task, training.feed, Setup())[1].endswith("; 3072 MiB are free")
    group = ProcessGroup(ProcessRank(0, 8, 0, 3))
    assert fitting_micro_batch(training.task, training.feed, Setup(), group)[1].endswith("; 1024 MiB are free")
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1)
    assert fitting_micro_batch(training.task, training.feed, Setup())[0] == 1


@pytest.mark.parametrize(
    ("batch_size", "micro", "stream", "at", "hint"),
    [
        (8, 8, False, 1, "train.micro_batch_size=4 continues the run"),
        (12, 4, False, 1, "train.micro_batch_size=2 continues the run"),  # 3 cuts the batch too, but is more than half
        (8, 1, False, 1, "a smaller model or train.context"),
        (8, 8, True, 0, "train.micro_batch_size=4 continues the run"),
        (8, 8, True, 1, "a smaller model or train.context"),  # what a stream remembers is cut as it was
    ],
)
def test_where_memory_ends_half_as_many_rows_a_pass_are_advised_if_the_run_can_go_on_so(
    batch_size: int, micro: int, stream: bool, at: int, hint: str
) -> None:
    class Large(Remember if stream else Guess):  # type: ignore[misc]
        calls = 0

        def forward(self, batch: Batch, state: State | None = None) -> LossSums:
            self.calls += 1
            if self.calls > at * batch_size // micro:
                raise MemoryError
            return super().forward(batch, state)

    training = training_of(Large())
    training = replace(
        training, feed=replace(training.feed, plan=RowPlan(N_ROWS, batch_size, 5, stream), micro_batch_size=micro)
    )
    reports = train(training)
    for _ in range(at):
        next(reports)
    with pytest.raises(
        StorageFault, match=rf"^out of memory at step {at + 1}, with micro-batches of {micro} rows: MemoryError$"
    ) as fault:
        next(reports)
    assert str(fault.value.hint).startswith(hint)


@pytest.mark.parametrize(("fitting", "advised"), [(None, 4), (3, 2), (1, 1), (0, 1), (8, 4)])
def test_where_a_gpu_has_no_memory_the_rows_that_fit_are_advised(
    fitting: int | None, advised: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Large(Guess):
        def forward(self, batch: Batch, state: State | None = None) -> LossSums:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(loop, "rows_that_fit", lambda task, feed, setup, error: fitting)
    training = training_of(Large())
    training = replace(training, feed=replace(training.feed, plan=RowPlan(N_ROWS, 8, 5), micro_batch_size=8))
    with pytest.raises(StorageFault, match="out of memory at step 1") as fault:
        next(train(training))
    assert str(fault.value.hint).startswith(f"train.micro_batch_size={advised} continues the run")


def test_rows_that_fit_are_measured_once_the_activations_of_the_failure_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of one row and the free memory; a GPU without memory for one row advises nothing."""
    held = torch.ones(3)
    alive, training = weakref.ref(held), training_of(Guess())

    def fail(activations: Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def measure(task: nn.Module, feed: Feed, setup: Setup) -> tuple[int, str]:
        assert alive() is None
        assert feed.micro_batch_size == 1
        return 5, ""

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(memory, "fitting_micro_batch", measure)
    with pytest.raises(torch.OutOfMemoryError) as failure:
        fail(*[held])
    del held
    gpu = Setup(device=torch.device("cuda:0"))
    assert rows_that_fit(training.task, training.feed, Setup(), failure.value) is None
    assert rows_that_fit(training.task, training.feed, gpu, failure.value) == 5
    monkeypatch.setattr(memory, "fitting_micro_batch", lambda *given: fail(torch.ones(3)))
    assert rows_that_fit(training.task, training.feed, gpu, failure.value) is None


def test_numbers_in_a_row_are_told_as_a_range() -> None:
    assert ranges([3, 4, 5, 9, 11, 12]) == "3-5, 9, 11-12"
    assert ranges(range(0, 40, 2)) == "0, 2, 4, 6, 8, 10, 12, 14, ..."
    assert ranges(range(0, 16, 2)) == "0, 2, 4, 6, 8, 10, 12, 14"


@pytest.mark.parametrize(("n", "named"), [(2, "0, 1"), (3, "0, 1, 2"), (4, "0, 1, 2, ...")])
def test_the_first_three_parameters_whose_gradient_is_not_finite_are_named(n: int, named: str) -> None:
    problem = gradient_problem({str(i): torch.full((2,), math.inf if i < n else 0.0) for i in range(5)}, math.inf)
    assert problem.message == f"the gradient norm is inf (in {named}), but must be finite"
    assert problem.parameters == tuple(map(str, range(n)))


def test_a_part_that_was_left_in_evaluation_mode_trains() -> None:
    """What samples text between two steps puts the model into evaluation mode, not the task."""
    training = training_of(Guess(dropout=0.3), steps=3)
    dropout = next(part for part in training.task.modules() if isinstance(part, nn.Dropout))
    modes = []
    dropout.register_forward_pre_hook(lambda part, _: modes.append(part.training))
    for _ in train(training):
        dropout.eval()
    assert modes
    assert all(modes)


def test_states_of_a_stream_begin_in_training_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cached of a memory differs in evaluation, in which a text may have been sampled before."""
    training, modes = training_of(Guess(), steps=1), []
    monkeypatch.setattr(loop, "stream_states", lambda training, *_: modes.append(training.task.training) or {})
    training.task.eval()
    next(train(training))
    assert modes == [True]


def test_a_task_is_refreshed_before_its_mixers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may copy buffers that they redraw."""
    order = list[str]()

    class Refreshed(Guess, Task):
        def refresh(self, seed: int, step: int) -> None:
            assert seed == seed_of(5, "refresh", "task")
            order.append("task")

    monkeypatch.setattr(Noted, "refresh", lambda *_: order.append("mixer"))
    task = Refreshed()
    task.mixer = Noted()
    list(train(training_of(task, steps=2)))
    assert order == ["task", "mixer"] * 2
