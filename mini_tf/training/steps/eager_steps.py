"""The gradient of a step out of its micro-batches, and the update of the parameters; kernel by kernel."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.nn.state import State, detach
from mini_tf.objectives import LossSums
from mini_tf.optimizers import Number
from mini_tf.system.seeds import seed_of
from mini_tf.training.training import Training

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
        for micro, batch in zip(training.feed.own(n), batches, strict=True):
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
        return batches[-1] if batches else replace(self.training.feed, own=lambda n: range(1)).micro_batches(step)[0]


def fetch(measured: Mapping[Key, Tensor | int], device: torch.device) -> dict[Key, float]:
    """All measured numbers as floats: the only device synchronization of a step."""
    exact = torch.float32 if device.type == "mps" else torch.float64
    tensors = {key: value.to(exact) for key, value in measured.items() if isinstance(value, Tensor)}
    fetched = dict(zip(tensors, torch.stack([*tensors.values()]).tolist(), strict=True))
    return {key: fetched[key] if key in fetched else float(value) for key, value in measured.items()}
