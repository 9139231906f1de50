"""The loop: the same result however a batch is cut, wherever a run is interrupted, whatever its reader does meanwhile."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from mini_tf.errors import Diverged, RunFault
from mini_tf.nn.mixer import Mixer
from mini_tf.nn.state import State, load, save
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.sections import Optimizer as OptimizerSettings
from mini_tf.recipe.sections import Schedule
from mini_tf.seeds import seed_of
from mini_tf.text.batch import Batch, Rows
from mini_tf.training import memory
from mini_tf.training.device import Setup
from mini_tf.training.feed import Feed
from mini_tf.training.loop import Progress, Report, Training, train
from mini_tf.training.loss_scale import LossScale
from mini_tf.training.memory import fitting_micro_batch
from mini_tf.training.optimizer import build
from mini_tf.training.plan import Plan
from mini_tf.training.schedule import Course, Horizon

VOCABULARY, CONTEXT, N_ROWS = 11, 6, 20
TEXT = np.random.default_rng(0).integers(1, VOCABULARY, N_ROWS * CONTEXT + 1)


@dataclass
class Sums:
    parts: dict[str, Tensor]
    metrics: dict[str, tuple[Tensor, Tensor | int]] = field(default_factory=dict)
    state: State | None = None


class Windows:
    """Windows of a fixed text, with one token of lookahead."""

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        return Rows(np.stack([TEXT[row * CONTEXT : (row + 1) * CONTEXT + 1] for row in rows]), keys)


def ask_unevenly(rows: Rows) -> Batch:
    """Asks for some places only, drawn from each row's key, so that micro-batches have unequal counts."""
    asked = np.stack([np.random.default_rng(int(key)).random(CONTEXT) < 0.4 for key in rows.keys])
    at = torch.from_numpy(np.flatnonzero(asked))
    ids = torch.from_numpy(rows.ids)
    labels = ids[:, 1:].flatten()[at]
    return Batch(Tokens(ids[:, :-1]), labels, at, counts={"guess": len(labels), "small": asked.size, "tokens": asked.size})


class Guess(nn.Module):
    """Embeds, mixes within the row, guesses; the second part of its loss keeps embeddings small."""

    weights = {"small": 0.3}

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.mix = nn.Linear(8, 8)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(8, VOCABULARY)

    def forward(self, batch: Batch, state: State | None = None) -> Sums:
        x = self.embedding(batch.inputs.ids)
        hidden = self.dropout(torch.tanh(self.mix(x + x.mean(1, keepdim=True))))
        assert batch.at is not None
        scores = self.head(hidden.flatten(0, 1)[batch.at])
        loss = nn.functional.cross_entropy(scores, batch.labels, reduction="sum")
        right = (scores.argmax(-1) == batch.labels).sum()
        return Sums({"guess": loss, "small": x.square().mean(-1).sum()}, {"accuracy": (right, len(batch.labels))})


def training_of(task: nn.Module, *, micro: int = 8, steps: int = 6, lr: float = 1e-2, clip: float = 0.0, stream: bool = False) -> Training:
    feed = Feed(Plan(N_ROWS, 8, 5, stream), Windows(), ask_unevenly, micro)
    course = Course(Schedule(kind="cosine", warmup=2), lr, Horizon(steps=steps))
    return Training(task, feed, build(OptimizerSettings(), task), course, Setup(), seed=5, clip=clip)


def weights_of(task: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in task.parameters()]


def first_gradients(task: nn.Module, micro: int) -> tuple[Report, list[Tensor]]:
    """The gradients of the first step, caught where the optimizer would use them."""
    training = training_of(task, micro=micro)
    caught: list[Tensor] = []
    training.optimizer.step = lambda lr, factor=1.0: caught.extend(p.grad.clone() for p in task.parameters())  # type: ignore[method-assign]
    return next(train(training)), caught


@pytest.mark.parametrize("micro", [1, 2, 4])
def test_micro_batches_change_neither_the_loss_nor_the_gradient(micro: int) -> None:
    (whole, expected), (cut, found) = first_gradients(Guess(), 8), first_gradients(Guess(), micro)
    assert cut.loss == pytest.approx(whole.loss, abs=1e-6)
    assert cut.tokens == whole.tokens == 8 * CONTEXT
    assert cut.metrics == whole.metrics
    for a, b in zip(found, expected, strict=True):
        assert float((a - b).norm()) <= 1e-5 * float(b.norm())


@pytest.mark.parametrize("micro", [1, 2])
def test_twenty_steps_in_micro_batches_agree_in_float64(micro: int) -> None:
    tasks = [Guess().double(), Guess().double()]
    for task, size in zip(tasks, (8, micro), strict=True):
        reports = list(train(training_of(task, micro=size, steps=20, clip=0.5)))
        assert len(reports) == 20
    for a, b in zip(*map(weights_of, tasks), strict=True):
        assert_close(a, b, rtol=0, atol=1e-10)


def test_the_loss_is_the_weighted_sum_of_parts_divided_by_the_counts_of_the_step() -> None:
    task = Guess()
    training = training_of(task, micro=2)
    batches = training.feed.micro_batches(0)
    sums = [task(batch) for batch in batches]
    n_asked = sum(len(batch.labels) for batch in batches)
    guess = sum(float(s.parts["guess"].detach()) for s in sums) / n_asked
    small = sum(float(s.parts["small"].detach()) for s in sums) / (8 * CONTEXT)
    right = sum(int(s.metrics["accuracy"][0]) for s in sums)
    report = next(train(training))
    assert report.losses == pytest.approx({"guess": guess, "small": small}, abs=1e-6)
    assert report.loss == pytest.approx(guess + 0.3 * small, abs=1e-6)
    assert report.metrics == {"accuracy": right / n_asked}


def test_training_learns_and_reports_every_step() -> None:
    reports = list(train(training_of(Guess(), steps=60, lr=5e-2)))
    assert [report.step for report in reports] == list(range(1, 61))
    assert reports[-1].tokens == 60 * 8 * CONTEXT
    assert reports[-1].losses["guess"] < 0.85 * reports[0].losses["guess"]
    assert [report.lr for report in reports[:3]] == [0.025, 0.05, 0.05]


@pytest.mark.parametrize("stopped_after", [1, 2, 5])
def test_a_run_that_stops_and_goes_on_ends_with_the_same_bits(stopped_after: int) -> None:
    whole = training_of(Guess(dropout=0.3), micro=4)
    reports = list(train(whole))
    first = training_of(Guess(dropout=0.3), micro=4)
    last = list(itertools.islice(train(first), stopped_after))[-1]
    second = training_of(Guess(dropout=0.3), micro=4)
    second.task.load_state_dict(first.task.state_dict())
    second.optimizer.load(first.optimizer.state_tensors())
    rest = list(train(second, Progress.of(last.counters())))
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


class Poison(Guess):
    """Gives a loss or a gradient that is not finite in the third step."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where, self.calls = where, 0

    def forward(self, batch: Batch, state: State | None = None) -> Sums:
        self.calls += 1
        sums = super().forward(batch, state)
        if self.calls == 10 and self.where == "loss":
            sums.parts["guess"] = sums.parts["guess"] * float("nan")
        if self.calls == 10 and self.where == "gradient":
            zero = self.head.bias.sum() * 0
            sums.parts["small"] = sums.parts["small"] + torch.sqrt(zero) * 0  # 0, whose slope is not a number
        return sums


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("loss", r"step 3: the loss 'guess' is nan, but must be finite \(micro-batch 2 of 4, rows \d+, \d+\)"),
        ("gradient", r"step 3: the norm of the gradient is nan \(in head\.bias\), but must be finite \(rows (\d+, ){7}\d+\)"),
    ],
)
def test_training_stops_before_a_loss_or_gradient_that_is_not_finite_reaches_the_weights(where: str, message: str) -> None:
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


def test_the_rows_that_a_fault_names_are_those_of_the_plan() -> None:
    feed = training_of(Guess(), micro=2).feed
    assert [feed.row_numbers(4, micro) for micro in range(4)] == feed.plan.rows(4).rows.reshape(4, 2).tolist()


class Noted(Mixer):
    """A mixer that notes when it was refreshed."""

    def __init__(self) -> None:
        super().__init__()
        self.refreshed: list[tuple[int, int]] = []

    def refresh(self, seed: int, step: int) -> None:
        self.refreshed.append((seed, step))


def test_every_mixer_is_refreshed_once_a_step_from_a_seed_of_its_own() -> None:
    task = Guess()
    mixers = [Noted(), Noted()]
    task.layers = nn.ModuleList(mixers)
    list(train(training_of(task, micro=2, steps=3)))
    for i, mixer in enumerate(mixers):
        assert mixer.refreshed == [(seed_of(5, "refresh", i), step) for step in range(3)]


def test_the_clock_ends_a_run_that_is_measured_in_time() -> None:
    ticks = iter(float(t) for t in itertools.count())
    training = replace(training_of(Guess()), course=Course(Schedule(kind="linear", warmup=0), 1.0, Horizon(seconds=10.0)))
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

    def trim(self, state: State) -> State:
        return state

    def forward(self, batch: Batch, state: State | None = None) -> Sums:
        assert state is not None
        total = state["total"]
        assert isinstance(total, Tensor)
        assert not total.requires_grad
        total = total + batch.inputs.ids.sum(1) + 0 * self.value(batch.inputs.ids).sum((1, 2))
        self.seen.append(total.detach())
        return Sums({"guess": total.sum() * 1e-6}, state={"total": total})


def test_a_stream_carries_the_state_of_each_row_detached_from_step_to_step() -> None:
    task = Remember()
    training = training_of(task, micro=4, steps=5, stream=True)
    list(train(training))
    starts = training.feed.plan.rows(0).rows
    totals = torch.cat(task.seen[-2:])
    for row, total in zip(starts, totals, strict=True):
        windows = [(row + step) % N_ROWS for step in range(5)]
        assert int(total) == sum(int(TEXT[w * CONTEXT : (w + 1) * CONTEXT].sum()) for w in windows)


def test_a_stream_goes_on_from_its_saved_state_and_refuses_another_micro_batch() -> None:
    whole, halved = Remember(), Remember()
    list(train(training_of(whole, micro=4, steps=5, stream=True)))
    last = list(itertools.islice(train(training_of(halved, micro=4, steps=5, stream=True)), 3))[-1]
    progress = Progress.of(last.counters(), load(save(last.state)))
    list(train(training_of(halved, micro=4, steps=5, stream=True), progress))
    assert all(torch.equal(a, b) for a, b in zip(whole.seen[-2:], halved.seen[-2:], strict=True))
    with pytest.raises(RunFault, match=r"saved in micro-batches of 4 rows; train\.micro_batch_size is 2") as fault:
        next(train(training_of(halved, micro=2, steps=5, stream=True), progress))
    assert fault.value.hint == "train.micro_batch_size=4"


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
    assert not next(reports).skipped


def test_the_loss_scale_does_not_change_what_is_learnt() -> None:
    plain, scaled = Guess(), Guess()
    a = next(train(training_of(plain)))
    b = next(train(replace(training_of(scaled), setup=Setup(precision="fp16"))))
    assert b.loss == pytest.approx(a.loss, rel=1e-2)
    assert b.grad_norm == pytest.approx(a.grad_norm, rel=1e-2)


def test_the_loss_scale_doubles_after_2000_good_steps() -> None:
    scale = LossScale(4.0)
    for _ in range(1999):
        scale = scale.after(overflow=False)
    assert scale.scale == 4.0
    assert scale.after(overflow=False) == LossScale(8.0, 0)
    assert scale.after(overflow=True) == LossScale(2.0, 0)


def test_an_auto_micro_batch_takes_all_rows_where_memory_suffices_and_fewer_where_not(monkeypatch: pytest.MonkeyPatch) -> None:
    training = training_of(Guess(), micro=1)
    size, reason = fitting_micro_batch(training.task, training.feed, Setup())
    assert size == 8
    assert reason.startswith("8 rows keep 0 MiB for the backward pass; ")
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1)
    assert fitting_micro_batch(training.task, training.feed, Setup())[0] == 1


def test_counters_survive_json_exactly() -> None:
    progress = Progress(step=3, tokens=10**12, seconds=1.5, loss_scale=LossScale(2.0**-3, 7))
    assert Progress.of({**progress.counters(), "metrics_offset": 5}) == progress
