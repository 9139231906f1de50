"""Training as a generator of reports: one optimizer step, one report; the reader prints, records, saves and stops.

A step's loss is the sum over its micro-batches, divided once by the counts of the whole step; so how a batch is cut changes
nothing but memory. All randomness is seeded from (seed, step, micro-batch); so a run continues at any step as if it had
never stopped, and what the reader does between two reports (evaluation, sampling) shifts nothing.
"""

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch
from mini_tf.nn.mixer import Mixer
from mini_tf.nn.state import State, detach
from mini_tf.objectives import Sums
from mini_tf.optimizers import Optimizer
from mini_tf.system.error_conversion import is_out_of_memory
from mini_tf.system.errors import Diverged, StorageFault
from mini_tf.system.seeds import seed_of
from mini_tf.training.counters import number
from mini_tf.training.divergence import Problem, Read, Tolerance, gradient_problem
from mini_tf.training.feed import Feed, ahead
from mini_tf.training.loss_scale import LossScale
from mini_tf.training.machine.device import Setup
from mini_tf.training.optimizer import clip_factor
from mini_tf.training.schedule import TrainingSchedule
from mini_tf.training.streaming import states_at


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where training stands between two steps, beside the weights and the optimizer's moments.

    step: finished steps; tokens: learnt from, padding not counted; seconds: taken so far. skips: steps left out so far, an
    overflow of fp16 included; skips_in_a_row: the last ones, since something was not finite. state: of a stream, a nested
    dict by micro-batch.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    skips: int = 0
    skips_in_a_row: int = 0
    loss_scale: LossScale = field(default_factory=LossScale)
    state: State | None = None

    def counters(self) -> dict[str, Any]:
        """All but the state, as JSON keeps it."""
        scale = {"loss_scale": self.loss_scale.scale.hex(), "good_steps": self.loss_scale.good_steps}
        skips = {"skips": self.skips, "skips_in_a_row": self.skips_in_a_row}
        return {"step": self.step, "tokens": self.tokens, "seconds": self.seconds, **skips, **scale}

    @classmethod
    def of(cls, counters: Mapping[str, Any], state: State | None = None) -> "Progress":
        """The inverse of `counters`; further keys are left alone, and the first checkpoints did not count skips."""
        counted = {"skips": 0, "skips_in_a_row": 0, **counters}
        numbers = {name: number(counted, name) for name in ("step", "tokens", "seconds", "skips", "skips_in_a_row")}
        scale = LossScale(float.fromhex(counters["loss_scale"]), number(counters, "good_steps"))
        return cls(**numbers, loss_scale=scale, state=state)


@dataclass(frozen=True, kw_only=True)
class Report(Progress):
    """What the last step gave, and where training stands after it.

    loss: the weighted sum of `losses`, each in nats per counted thing, as they were before the step. grad_norm: before
    clipping. skipped: the weights stayed as they were, because of the `problem`, or where there is none since fp16 overflowed.
    """

    loss: float
    losses: dict[str, float]
    metrics: dict[str, float]
    lr: float
    grad_norm: float
    skipped: bool = False
    problem: Problem | None = None


class DivergedStep(Diverged):
    """A step that was not taken, which ends training: where training stood, and a report of what the step gave, hiding nothing."""

    def __init__(self, message: str, at: Progress, report: Report, problem: Problem, read: Read) -> None:
        more = "" if problem.may_be_skipped else "; raise train.stop_above where such a loss is no fault"
        super().__init__(message, hint=f"lower optimizer.lr, lengthen schedule.warmup or set optimizer.clip{more}")
        self.at, self.report, self.problem, self.read = at, report, problem, read


@dataclass(frozen=True)
class Training:
    """The parts that stay the same over all steps. `clip`: the largest gradient norm, 0 = any; `tolerance`: what does not end them.

    task(batch, state) gives Sums. weights: of the parts of the loss, by name; 1 where absent. Where the feed is a stream,
    `task.start(rows)` gives the empty state and `task.trim(state)` drops what no later row needs.
    """

    task: nn.Module
    feed: Feed
    optimizer: Optimizer
    schedule: TrainingSchedule
    setup: Setup
    seed: int = 0
    clip: float = 0.0
    tolerance: Tolerance = field(default_factory=Tolerance)
    weights: Mapping[str, float] = field(default_factory=dict)


def train(
    training: Training, start: Progress | None = None, clock: Callable[[], float] = time.perf_counter
) -> Generator[Report, None, None]:
    """Step from `start` to the end of the schedule, with a report after each step.

    Raises DivergedStep, before the weights are touched, where the loss or the gradient is not finite, or the loss too large.
    """
    at: Progress = start or Progress()
    began = clock() - at.seconds
    states = states_at(training.task, training.feed, training.setup, at.step, at.state)
    forward = training.setup.compiled(training.task)
    mixers = [part for part in training.task.modules() if isinstance(part, Mixer)]
    with ahead(training.feed, at.step, in_background=training.setup.device.type != "cpu") as upcoming:
        while not training.schedule.finished(at.step, now := clock() - began):
            lr = training.schedule.rate(at.step, now)
            training.task.train()
            for i, mixer in enumerate(mixers):
                mixer.refresh(seed_of(training.seed, "refresh", i), at.step)
            batches = next(upcoming)
            counts, before = _added(count for batch in batches for count in batch.counts.items()), list(states)
            with _telling_where_memory_ends(training, at):
                measured = _learn(training, forward, batches, counts, states, at)
            report = _judge(training, _fetch(measured, training.setup.device), counts, lr, at)
            if not report.skipped:
                training.optimizer.step(lr, clip_factor(report.grad_norm, training.clip) / _scale(training, at))
            if report.problem is not None:  # what followed from it may not be finite either
                states = before
            training.optimizer.zero_grad()
            state: State = {str(micro): kept for micro, kept in enumerate(states) if kept is not None}
            at = replace(report, seconds=clock() - began, state=state or None)
            yield at


@contextmanager
def _telling_where_memory_ends(training: Training, at: Progress) -> Iterator[None]:
    """StorageFault that names the step, and the micro-batches to go on with, where a pass does not fit into memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        rows, plan = training.feed.micro_batch_size, training.feed.plan
        hint = "a smaller model or train.context"
        smaller = [m for m in range(1, rows // 2 + 1) if not plan.even or plan.batch_size % m == 0]
        if smaller and not (plan.stream and at.step):  # the state of a stream is cut into passes as it was
            hint = f"train.micro_batch_size={max(smaller)} goes on; the result stays valid, though not equal to the bit"
        raise StorageFault(
            f"out of memory at step {at.step + 1}, with {rows} rows a pass: {(str(error).splitlines() or ['MemoryError'])[0][:200]}",
            hint=hint,
        ) from error


Number = TypeVar("Number", int, float)
Key = tuple[Literal["part", "total", "many", "norm"], str, int]
"""What one step measured, whose and in which micro-batch: the sum of a part of the loss; of a metric what was summed, and how many; the
norm of the gradient."""


def _learn(
    training: Training, forward: Callable[..., Sums], batches: list[Batch], counts: dict[str, int], states: list[State | None], at: Progress
) -> dict[Key, Tensor | int]:
    """Add the gradient of every micro-batch and put the state that follows into `states`; nothing waits for the device."""
    measured: dict[Key, Tensor | int] = {}
    for micro, batch in enumerate(batches):
        torch.manual_seed(seed_of(training.seed, at.step, micro))
        with training.setup.autocast():
            sums = forward(batch.to(training.setup.device), states[micro])
        terms = [part * (training.weights.get(name, 1.0) / max(counts[name], 1)) for name, part in sums.parts.items()]
        torch.stack(terms).sum().mul(_scale(training, at)).backward()
        states[micro] = None if sums.state is None else training.task.trim(detach(sums.state))  # type: ignore[operator]
        measured |= {("part", name, micro): part.detach() for name, part in sums.parts.items()}
        for name, (total, many) in sums.metrics.items():
            measured["total", name, micro], measured["many", name, micro] = total.detach(), many
    return measured | {("norm", "", 0): training.optimizer.grad_norm()}


def _fetch(measured: Mapping[Key, Tensor | int], device: torch.device) -> dict[Key, float]:
    """Python numbers of all that was measured: the one place in a step that waits for the device."""
    exact = torch.float32 if device.type == "mps" else torch.float64
    tensors = {key: value.to(exact) for key, value in measured.items() if isinstance(value, Tensor)}
    fetched = dict(zip(tensors, torch.stack([*tensors.values()]).tolist(), strict=True))
    return {key: fetched[key] if key in fetched else float(value) for key, value in measured.items()}


def _judge(training: Training, measured: Mapping[Key, float], counts: dict[str, int], lr: float, at: Progress) -> Report:
    """What the step comes to; DivergedStep where it must not be taken, nor left out."""
    parts, totals, many = (
        _added((key[1], value) for key, value in measured.items() if key[0] == sort) for sort in ("part", "total", "many")
    )
    losses = {name: value / max(counts[name], 1) for name, value in parts.items()}
    loss = sum(training.weights.get(name, 1.0) * value for name, value in losses.items())
    norm = measured["norm", "", 0] / _scale(training, at)
    half = training.setup.precision == "fp16"
    problem = _loss_problem(measured)
    overflow = problem is None and half and at.loss_scale.scale > 1 and not math.isfinite(norm)
    if problem is None and not overflow:
        problem = _problem(training, loss, norm)
    fatal = problem is not None and not (problem.may_be_skipped and at.skips_in_a_row < training.tolerance.most_skips)
    skipped = overflow or (problem is not None and not fatal)
    report = Report(
        step=at.step + 1,
        tokens=at.tokens + counts["tokens"],
        skips=at.skips + skipped,
        skips_in_a_row=at.skips_in_a_row + 1 if skipped and not overflow else 0,
        loss_scale=at.loss_scale.after(overflow) if half and problem is None else at.loss_scale,
        loss=loss,
        losses=losses,
        metrics={name: total / max(many[name], 1) for name, total in totals.items()},
        lr=lr,
        grad_norm=norm,
        skipped=skipped,
        problem=problem,
    )
    if problem is not None and fatal:
        raise _diverged(training, problem, report, at)
    return report


def _loss_problem(measured: Mapping[Key, float]) -> Problem | None:
    """The first part of the loss that is not finite."""
    bad = [(name, micro, value) for (sort, name, micro), value in measured.items() if sort == "part" and not math.isfinite(value)]
    return Problem(f"the loss {bad[0][0]!r} is {bad[0][2]}, but must be finite", bad[0][1]) if bad else None


def _problem(training: Training, loss: float, norm: float) -> Problem | None:
    """What is wrong with a step whose losses are finite, and whose gradient did not overflow for its scale."""
    if not math.isfinite(norm):
        return gradient_problem(training.task, norm)
    most = training.tolerance.stop_above
    return Problem(f"the loss is {loss:.6g}, but train.stop_above is {most:g}", may_be_skipped=False) if loss > most else None


def _added(numbers: Iterable[tuple[str, Number]]) -> dict[str, Number]:
    """The sum of each name's numbers, added one after the other."""
    sums: dict[str, Number] = {}
    for name, value in numbers:
        sums[name] = sums.get(name, 0) + value
    return sums


def _scale(training: Training, at: Progress) -> float:
    return at.loss_scale.scale if training.setup.precision == "fp16" else 1.0


def _diverged(training: Training, problem: Problem, report: Report, at: Progress) -> DivergedStep:
    """The fault as a person needs it: which step, and what was read in it."""
    read = Read.of(training.feed, at.step, problem.micro)
    n_micro = len(training.feed.cuts(len(training.feed.plan.rows(at.step).rows)))
    place = "" if problem.micro is None else f"micro-batch {problem.micro + 1} of {n_micro}, "
    after = f", after {at.skips_in_a_row} left out in a row" if at.skips_in_a_row else ""
    return DivergedStep(f"step {report.step}{after}: {problem.what} ({place}{read})", at, report, problem, read)
