"""The training loop: a generator of reports, one per optimizer step; the caller logs, evaluates, saves and stops.

The loss of a step is the sum over its micro-batches, divided by the counts of the whole step, so gradient accumulation
is exact for any micro-batch size. Random numbers are seeded from (seed, step, micro-batch), so a resumed run equals an
uninterrupted one, and what the caller does between two reports (evaluation, sampling) changes nothing.

Several processes share the micro-batches of a step: each knows the counts of all before the backward pass, the sum of
the gradients and all measured numbers after it, so all have the same report and take the same update.
"""

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from torch import nn

from mini_tf.nn.cuda_graphs import CUDAGraphs
from mini_tf.nn.mixer import Mixer
from mini_tf.nn.state import State
from mini_tf.objectives import Task
from mini_tf.system.errors import Diverged, StorageFault, is_out_of_memory
from mini_tf.system.seeds import seed_of
from mini_tf.training.captured_steps import CapturedSteps
from mini_tf.training.counters import number
from mini_tf.training.divergence import Problem, StepData, gradient_problem
from mini_tf.training.feed import prefetch
from mini_tf.training.machine.memory import rows_that_fit
from mini_tf.training.optimizer import clip_factor
from mini_tf.training.training import EagerSteps, Key, Training, fetch, stream_states

_GROWTH_INTERVAL = 2000


@dataclass(frozen=True)
class LossScale:
    """Dynamic loss scaling for fp16, as torch.amp.GradScaler: the scale, and the finite steps since it changed.

    After an overflow the step is skipped and the scale halved; after 2000 consecutive finite steps it is doubled.
    Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.2.
    """

    scale: float = 2.0**16
    good_steps: int = 0

    def after(self, overflow: bool) -> "LossScale":
        """The scale of the next step."""
        if overflow:
            return LossScale(self.scale / 2)
        if self.good_steps + 1 == _GROWTH_INTERVAL:
            return LossScale(self.scale * 2)
        return LossScale(self.scale, self.good_steps + 1)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Training state between two steps, besides parameters and optimizer state.

    step: finished steps. tokens: training tokens so far, without padding. seconds: training time so far.
    skips: skipped steps so far, including fp16 overflows. skips_in_a_row: consecutive last steps skipped for a
    non-finite loss or gradient. state: recurrent state of a stream, by micro-batch, for those of this process.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    skips: int = 0
    skips_in_a_row: int = 0
    loss_scale: LossScale = field(default_factory=LossScale)
    state: State | None = None

    def counters(self) -> dict[str, Any]:
        """All but the state, as JSON."""
        scale = {"loss_scale": self.loss_scale.scale.hex(), "good_steps": self.loss_scale.good_steps}
        skips = {"skips": self.skips, "skips_in_a_row": self.skips_in_a_row}
        return {"step": self.step, "tokens": self.tokens, "seconds": self.seconds, **skips, **scale}

    @classmethod
    def of(cls, counters: Mapping[str, Any], state: State | None = None) -> "Progress":
        """The inverse of `counters`; ignores other keys."""
        numbers = {name: number(counters, name) for name in ("step", "tokens", "seconds", "skips", "skips_in_a_row")}
        scale = LossScale(float.fromhex(counters["loss_scale"]), number(counters, "good_steps"))
        return cls(**numbers, loss_scale=scale, state=state)


@dataclass(frozen=True, kw_only=True)
class Report(Progress):
    """Metrics of the last step, and the training state after it.

    loss: weighted sum of `losses` (the mean of each part), before the update. grad_norm: before clipping. skipped: the
    parameters were not updated, because of `problem`, or of an fp16 overflow if problem is None.
    """

    loss: float
    losses: dict[str, float]
    metrics: dict[str, float]
    lr: float
    grad_norm: float
    skipped: bool = False
    problem: Problem | None = None


class DivergedStep(Diverged):
    """A step that ends training before its update.

    at: training state before it. report: its metrics, finite or not. data: its rows and documents.
    """

    def __init__(self, message: str, at: Progress, report: Report, problem: Problem, data: StepData) -> None:
        more = "" if problem.may_be_skipped else "; raise train.stop_above if such a loss is normal"
        super().__init__(message, hint=f"lower optimizer.lr, lengthen schedule.warmup or set optimizer.clip{more}")
        self.at, self.report, self.problem, self.data = at, report, problem, data

    def info(self) -> dict[str, Any]:
        """For `inspect crash`: what is not finite, where, and the counters before the step; numbers count from 1."""
        return {
            "step": self.report.step,
            "micro_batch": None if self.problem.micro is None else self.problem.micro + 1,
            "what": self.problem.message,
            "message": self.message,
            "rows": self.data.rows,
            "documents": self.data.documents,
            "parameters": list(self.problem.parameters),
            "counters": self.at.counters(),
        }


def train(
    training: Training, start: Progress | None = None, clock: Callable[[], float] = time.perf_counter
) -> Generator[Report, None, None]:
    """Train from `start` (default: the beginning) to the end of the schedule, and yield a report after each step.

    Raises DivergedStep before the update if the loss or the gradient is not finite and the step may not be skipped, or
    the loss is too large. Raises StorageFault if memory runs out.
    """
    at: Progress = start or Progress()
    start_time = clock() - at.seconds
    training.task.train()
    modules = [*training.task.modules()]
    states = stream_states(training, at.step, at.state)
    group = training.reduction.group
    refreshed, device = _refreshed(training.task), training.setup.device
    steps = CapturedSteps(training, CUDAGraphs(device)) if training.setup.graphs else EagerSteps(training)
    with prefetch(training.feed, at.step, device.type != "cpu", pinned=device.type == "cuda") as upcoming:
        for batches in upcoming:
            local_counts = _sum_by_name(count for batch in batches for count in batch.counts.items())
            together = group.all_gather([local_counts, clock() - start_time])
            if training.schedule.finished(at.step, now := together[0][1]):
                return
            lr = training.schedule.lr(at.step, now)
            if not all(module.training for module in modules):  # which is faster than setting it
                training.task.train()
            outdated = [part.refresh(seed_of(training.seed, "refresh", i), at.step) for i, part in refreshed.items()]
            if any(outdated):
                states = stream_states(training, 0, None)
            counts, before = _sum_by_name(count for counts, _ in together for count in counts.items()), dict(states)
            with _memory_faults(training, at):
                measured = steps.gradients(batches, counts, states, at.step, _scale(training, at))
            fetched = fetch(measured, device)
            everywhere = group.all_gather([[[*key, value] for key, value in fetched.items()], clock() - start_time])
            numbers = {(kind, name, micro): value for some, _ in everywhere for kind, name, micro, value in some}
            report = _report(training, numbers, counts, lr, at)
            if not report.skipped:
                steps.update(lr, clip_factor(report.grad_norm, training.clip) / _scale(training, at))
            if report.problem is not None:  # the new states may not be finite either
                states = before
            training.optimizer.zero_grad()
            state: State = {str(micro): of_micro for micro, of_micro in states.items() if of_micro is not None}
            at = replace(report, seconds=everywhere[0][1], state=state or None)
            yield at


def _refreshed(task: nn.Module) -> dict[int | str, Task | Mixer]:
    """The task, then its mixers, as far as they change something before a step; by what their seeds are made of."""
    parts: dict[int | str, Task | Mixer] = {"task": task} if isinstance(task, Task) else {}
    parts |= enumerate(part for part in task.modules() if isinstance(part, Mixer))
    return {key: part for key, part in parts.items() if type(part).refresh not in (Task.refresh, Mixer.refresh)}


@contextmanager
def _memory_faults(training: Training, at: Progress) -> Iterator[None]:
    """Turn an out-of-memory error into a StorageFault with the step and a smaller micro-batch size."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        rows, plan = training.feed.micro_batch_size, training.feed.plan
        hint = "a smaller model or train.context"
        smaller = [m for m in range(1, rows // 2 + 1) if not plan.even or plan.batch_size % m == 0]
        fitting = rows_that_fit(training.task, training.feed, training.setup, error)
        smaller = [m for m in smaller if fitting is None or m <= fitting] or smaller[:1]
        if smaller and not (plan.stream and at.step):  # the state of a stream has the old micro-batch size
            hint = f"train.micro_batch_size={max(smaller)} continues the run; results may differ in the last bits"
        reason = next(iter(str(error).splitlines()), "MemoryError")[:200]
        fault = f"out of memory at step {at.step + 1}, with micro-batches of {rows} rows: {reason}"
        raise StorageFault(fault, hint=hint) from error


Number = TypeVar("Number", int, float)


def _report(
    training: Training, measured: Mapping[Key, float], counts: dict[str, int], lr: float, at: Progress
) -> Report:
    """The report of a step. Raises DivergedStep if the step has a problem and may not be skipped."""
    loss_sums, metric_sums, metric_counts = (
        _sum_by_name((key[1], value) for key, value in measured.items() if key[0] == kind)
        for kind in ("loss", "metric_sum", "metric_count")
    )
    losses = {name: value / max(counts[name], 1) for name, value in loss_sums.items()}
    loss = sum(training.weights.get(name, 1.0) * value for name, value in losses.items())
    norm = measured["grad_norm", "", 0] / _scale(training, at)
    fp16 = training.setup.precision == "fp16"
    problem = _loss_problem(measured)
    overflow = problem is None and fp16 and at.loss_scale.scale > 1 and not math.isfinite(norm)
    if problem is None and not overflow:
        problem = _problem(training, loss, norm)
    fatal = problem is not None and not (problem.may_be_skipped and at.skips_in_a_row < training.tolerance.most_skips)
    skipped = overflow or (problem is not None and not fatal)
    report = Report(
        step=at.step + 1,
        tokens=at.tokens + counts["tokens"],
        skips=at.skips + skipped,
        skips_in_a_row=at.skips_in_a_row + 1 if skipped and not overflow else 0,
        loss_scale=at.loss_scale.after(overflow) if fp16 and problem is None else at.loss_scale,
        loss=loss,
        losses=losses,
        metrics={name: total / max(metric_counts[name], 1) for name, total in metric_sums.items()},
        lr=lr,
        grad_norm=norm,
        skipped=skipped,
        problem=problem,
    )
    if problem is not None and fatal:
        raise _diverged(training, problem, report, at)
    return report


def _loss_problem(measured: Mapping[Key, float]) -> Problem | None:
    """The first loss that is not finite."""
    for (kind, name, micro), value in measured.items():
        if kind == "loss" and not math.isfinite(value):
            return Problem(f"the loss {name!r} is {value}, but must be finite", micro)
    return None


def _problem(training: Training, loss: float, norm: float) -> Problem | None:
    """The problem of a step with finite losses and no fp16 overflow, if any."""
    if not math.isfinite(norm):
        gradients = {name: p.tensor.grad for name, p in training.optimizer.parameters.items()}
        return gradient_problem(gradients, norm, training.reduction.group)
    most = training.tolerance.stop_above
    if loss > most:
        return Problem(f"the loss is {loss:.6g}, but train.stop_above is {most:g}", may_be_skipped=False)
    return None


def _sum_by_name(numbers: Iterable[tuple[str, Number]]) -> dict[str, Number]:
    """The sum of the numbers of each name, added in order."""
    sums: dict[str, Number] = {}
    for name, value in numbers:
        sums[name] = sums.get(name, 0) + value
    return sums


def _scale(training: Training, at: Progress) -> float:
    return at.loss_scale.scale if training.setup.precision == "fp16" else 1.0


def _diverged(training: Training, problem: Problem, report: Report, at: Progress) -> DivergedStep:
    """The error, with step, micro-batch and the documents or rows of its batch."""
    data = StepData.of(training.feed, at.step, problem.micro)
    n_micro = training.feed.n_micro_of(at.step)
    where = "" if problem.micro is None else f"micro-batch {problem.micro + 1} of {n_micro}, "
    after = f", after {at.skips_in_a_row} skipped in a row" if at.skips_in_a_row else ""
    return DivergedStep(f"step {report.step}{after}: {problem.message} ({where}{data})", at, report, problem, data)
