"""Cost of training steps: FLOPs, memory and time of real steps on real data, without side effects."""

import resource
import statistics
import sys
from dataclasses import dataclass
from itertools import pairwise

import torch

from mini_tf.jobs.parts import Parts
from mini_tf.training.flops import TRAINING_PASSES, flops_of
from mini_tf.training.loop import Training, train
from mini_tf.training.machine.memory import saved_bytes

WARM_UP = 2
"""Steps not counted: memory allocation and torch.compile."""
FEWEST = 5
"""Minimum number of timed steps, if the run has so many."""
SEEN = 8
"""Steps inspected to find a typical one, and the largest: sizes differ with train.batch_tokens."""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes in training; activations: what the backward pass of one micro-batch needs."""

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class StepFlops:
    """Of one step. flops: matrix products, forward and backward. tokens: without padding."""

    flops: int
    tokens: int


@dataclass(frozen=True)
class Pace:
    """seconds: of a typical step (median). warm_up: extra time of the first steps. peak_bytes: see `peak_bytes`."""

    seconds: float
    warm_up: float
    peak_bytes: int


def usual_step(training: Training) -> int:
    """The first step with the median number of tokens."""
    tokens = [sum(batch.counts["tokens"] for batch in training.feed.micro_batches(step)) for step in range(SEEN)]
    return tokens.index(statistics.median_low(tokens))


@torch.no_grad()  # with gradients enabled a forward pass may do part of the backward pass
def step_flops(parts: Parts, training: Training) -> StepFlops:
    """FLOPs of a typical step; the output layer works at targets only. A stream is counted without its state."""
    parts.task.train()
    batches = [batch.to(parts.setup.device) for batch in training.feed.micro_batches(usual_step(training))]
    with parts.setup.autocast():
        flops = flops_of(lambda: [parts.task(batch, None) for batch in batches])
    return StepFlops(TRAINING_PASSES * flops, sum(batch.counts["tokens"] for batch in batches))


def memory_of(parts: Parts, training: Training) -> MemoryUse:
    """Memory before training: sizes of tensors, without the process, torch and temporary buffers."""
    seen = [batch for step in range(SEEN) for batch in training.feed.micro_batches(step)]
    batch = max(seen, key=lambda batch: batch.inputs.ids.numel()).to(parts.setup.device)
    parts.task.train()
    return MemoryUse(
        weights=sum(t.numel() * t.element_size() for t in [*parts.model.weights().values(), *parts.objective_tensors().values()]),
        gradients=sum(p.numel() * p.element_size() for p in parts.trainable.parameters() if p.requires_grad),
        optimizer=sum(t.numel() * t.element_size() for t in training.optimizer.state_tensors().values()),
        activations=saved_bytes(lambda: parts.task(batch, None), parts.setup, parts.task),
    )


def pace_of(training: Training, seconds: float) -> Pace:
    """Train for about so many seconds, at least `FEWEST` steps after the warmup, at most to the end of the run."""
    ends = [0.0]
    for report in train(training):
        ends.append(report.seconds)  # since training began
        if len(ends) > WARM_UP + FEWEST and ends[-1] - ends[WARM_UP] >= seconds:
            break
    each = [end - begin for begin, end in pairwise(ends)]
    usual = statistics.median(each[WARM_UP:] or each)
    return Pace(usual, max(0.0, sum(each[:WARM_UP]) - usual * min(WARM_UP, len(each))), peak_bytes(training.setup.device))


def peak_bytes(device: torch.device) -> int:
    """Peak memory so far: of tensors on a GPU, else of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
