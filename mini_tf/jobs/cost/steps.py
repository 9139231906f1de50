"""What the steps of a run take: real ones, of the real model on the real text, are counted, weighed and timed, then forgotten."""

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
"""Steps that are not counted: they find their memory, and torch.compile does its work."""
FEWEST = 5
"""Steps that are timed at least, where the run has so many."""
SEEN = 8
"""Steps that are looked at for a usual one, and for the largest: with train.batch_tokens each is of another size."""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of what training holds at the same time; activations: what the backward pass of one micro-batch needs."""

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class StepFlops:
    """Of one step. flops: products alone, forward and backward. tokens: padding not counted."""

    flops: int
    tokens: int


@dataclass(frozen=True)
class Pace:
    """seconds: of a usual step (the median). warm_up: what the first steps took longer, together. peak_bytes: see `peak_bytes`."""

    seconds: float
    warm_up: float
    peak_bytes: int


def usual_step(training: Training) -> int:
    """Of the first steps, from 0, the first that has as many tokens as the middle one of them."""
    tokens = [sum(batch.counts["tokens"] for batch in training.feed.micro_batches(step)) for step in range(SEEN)]
    return tokens.index(statistics.median_low(tokens))


@torch.no_grad()  # with gradients asked for, a forward pass may do a part of the backward pass already
def step_flops(parts: Parts, training: Training) -> StepFlops:
    """Of a usual step, as it is computed: a head works only where something is asked. A stream is counted without its memory."""
    parts.task.train()
    batches = [batch.to(parts.setup.device) for batch in training.feed.micro_batches(usual_step(training))]
    with parts.setup.autocast():
        flops = flops_of(lambda: [parts.task(batch, None) for batch in batches])
    return StepFlops(TRAINING_PASSES * flops, sum(batch.counts["tokens"] for batch in batches))


def memory_of(parts: Parts, training: Training) -> MemoryUse:
    """Weighed before training: the sizes of tensors, without what the process, torch and single operations take besides."""
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
    """Train for about so many seconds, but at least `FEWEST` steps after the warm-up, and at most to the end of the run."""
    ends = [0.0]
    for report in train(training):
        ends.append(report.seconds)  # since training began
        if len(ends) > WARM_UP + FEWEST and ends[-1] - ends[WARM_UP] >= seconds:
            break
    each = [end - begin for begin, end in pairwise(ends)]
    usual = statistics.median(each[WARM_UP:] or each)
    return Pace(usual, max(0.0, sum(each[:WARM_UP]) - usual * min(WARM_UP, len(each))), peak_bytes(training.setup.device))


def peak_bytes(device: torch.device) -> int:
    """The most memory at a time, so far: of a GPU's, what tensors took; else what the whole process had of the machine's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
