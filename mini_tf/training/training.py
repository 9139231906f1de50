"""What is constant over all steps of training; one step after another, kernel by kernel; the states of a stream."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch
from mini_tf.nn.state import State, detach, move
from mini_tf.objectives import LossSums
from mini_tf.optimizers import Number, Optimizer
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.reduction import Reduction
from mini_tf.parallel.sharding import Sharding
from mini_tf.system.errors import RunFault, is_bug
from mini_tf.system.seeds import seed_of
from mini_tf.training.divergence import Tolerance
from mini_tf.training.feed import Feed
from mini_tf.training.machine.device import Setup
from mini_tf.training.schedule import TrainingSchedule


@dataclass(frozen=True)
class Training:
    """Everything that is constant over all steps.

    task: the module of `Objective.task`. For a stream, `task.start(rows)` returns the initial state and
    `task.carry(state)` is what the next rows need of it. clip: largest gradient norm, 0 = no clipping. tolerance:
    non-finite steps to skip, largest loss allowed. weights: weight of each part of the loss; 1 if absent. reduction:
    how the gradients of micro-batches and processes are added. sharding: what processes divide among them. warn: prints
    a line if steps cannot be captured in CUDA graphs as `setup` says; their results are the same.
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
    reduction: Reduction = field(default_factory=lambda: Reduction((), ProcessGroup()))
    sharding: Sharding = field(default_factory=lambda: Sharding(ProcessGroup()))
    warn: Callable[[str], None] = print


Key = tuple[Literal["loss", "metric_sum", "metric_count", "grad_norm"], str, int]
"""(kind, name of the loss or metric, micro-batch) of one number that a step measures."""


class EagerSteps:
    """`gradients` and `update` of one step after another. Neither waits for the device."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self._forward = training.setup.compiled(training.reduction.forward(training.task), training.feed)

    def gradients(
        self, batches: list[Batch], counts: Mapping[str, int], states: dict[int, State | None], step: int, scale: float
    ) -> dict[Key, Tensor | int]:
        """Forward and backward pass of every micro-batch of this process; updates `states`. The gradient is that of the
        step, times `scale`."""
        training, measured = self.training, dict[Key, Tensor | int]()
        n, reduction = training.feed.n_micro_of(step), training.reduction
        factors = {name: training.weights.get(name, 1.0) / max(count, 1) for name, count in counts.items()}
        for micro, batch in zip(training.feed.assigned(n), batches, strict=True):
            training.setup.seed(seed_of(training.seed, step, micro))
            with reduction.micro_batch(micro, n):
                sums = self._forward_backward(batch, states.get(micro), factors, scale)
            reduction.add()
            states[micro] = None if sums.state is None else training.task.carry(sums.state)  # type: ignore[operator]
            measured |= {("loss", name, micro): part for name, part in sums.parts.items()}
            for name, (total, count) in sums.metrics.items():
                measured["metric_sum", name, micro], measured["metric_count", name, micro] = total, count
        for _ in range(reduction.spare(n)):
            with reduction.micro_batch(0, n), training.setup.autocast():
                spare = self._any_batch(batches, step).to(training.setup.device)
                unused = self._forward(spare, next(iter(states.values()), None))
                torch.stack([*unused.parts.values()]).sum().mul(0.0).backward()
        reduction.finish(n)
        return measured | {("grad_norm", "", 0): self._grad_norm()}

    def update(self, lr: float, grad_factor: float) -> None:
        """Update the parameters by the gradients of the step, times `grad_factor`."""
        self.training.optimizer.step(lr, grad_factor)

    def _forward_backward(
        self, batch: Batch, state: State | None, factors: Mapping[str, Number], scale: Number
    ) -> LossSums:
        """Forward and backward pass of one micro-batch. The result is detached.

        factors: by which each part of the loss is multiplied; scale: of the whole loss.
        """
        with self.training.setup.autocast():
            sums = self._forward(batch.to(self.training.setup.device), state)
        torch.stack([part * factors[name] for name, part in sums.parts.items()]).sum().mul(scale).backward()
        parts = {name: part.detach() for name, part in sums.parts.items()}
        return LossSums(
            parts, {name: (total.detach(), count) for name, (total, count) in sums.metrics.items()}, detach(sums.state)
        )

    def _grad_norm(self) -> Tensor:
        return self.training.optimizer.grad_norm()

    def _any_batch(self, batches: list[Batch], step: int) -> Batch:
        """A micro-batch of the step: the last one of this process, or of another one where this one has none."""
        if batches:
            return batches[-1]
        return replace(self.training.feed, assigned=lambda n: range(1)).micro_batches(step)[0]


def fetch(measured: Mapping[Key, Tensor | int], device: torch.device) -> dict[Key, float]:
    """All measured numbers as floats: the only device synchronization of a step."""
    exact = torch.float32 if device.type == "mps" else torch.float64
    tensors = {key: value.to(exact) for key, value in measured.items() if isinstance(value, Tensor)}
    fetched = dict(zip(tensors, torch.stack([*tensors.values()]).tolist(), strict=True))
    return {key: fetched[key] if key in fetched else float(value) for key, value in measured.items()}


def stream_states(training: Training, step: int, saved: State | None) -> dict[int, State | None]:
    """The state of each micro-batch of this process after `step` steps: initial, or from a checkpoint.

    {} without `train.stream`. saved: that of all micro-batches. Raises RunFault if it does not fit.
    """
    task, feed = training.task, training.feed
    if not feed.plan.stream:
        return {}
    assigned = feed.assigned(feed.n_micro)
    with training.sharding.whole():  # the model is called, and whole weights may not fit on the device otherwise
        if saved is None:
            if step:
                raise RunFault(f"the stream state after step {step} is missing", hint="--fresh starts a new run")
            return {micro: task.start(feed.micro_batch_size) for micro in assigned}  # type: ignore[operator]
        if saved.keys() != {str(micro) for micro in range(feed.n_micro)}:
            size = feed.plan.batch_size // len(saved)
            fault = f"the stream was saved in micro-batches of {size} rows; train.micro_batch_size is"
            raise RunFault(f"{fault} {feed.micro_batch_size}", hint=f"train.micro_batch_size={size}")
        batches = zip(assigned, feed.micro_batches(step), strict=True)
        return {micro: _validated(task, training.setup, batch, saved[str(micro)], micro) for micro, batch in batches}


def _validated(task: nn.Module, setup: Setup, batch: Batch, saved: object, micro: int) -> State | None:
    """A saved state on the device, validated by a forward pass from a copy: only the model knows which are valid."""
    try:
        if not isinstance(saved, dict):
            raise TypeError("not a dict of tensors")
        state = move(saved, setup.device)
        with torch.no_grad(), setup.autocast():
            task(batch.to(setup.device), deepcopy(state))
    except Exception as error:
        if not is_bug(error):
            raise
        reason = next(iter(str(error).splitlines()), "")[:200]
        raise RunFault(f"the stream state of micro-batch {micro + 1} does not fit the model: {reason}") from error
    return state
