"""FLOPs, memory and time of training steps, measured with the run's own model and data."""

import resource
import statistics
import sys
from dataclasses import dataclass
from itertools import pairwise

import torch

from mini_tf.jobs.parts import Parts
from mini_tf.training.loop import train
from mini_tf.training.machine.memory import saved_bytes
from mini_tf.training.training import Training

WARMUP_STEPS = 2
"""Not timed: memory is allocated, and torch.compile compiles."""
MIN_TIMED_STEPS = 5
INSPECTED_STEPS = 8
"""Steps searched for the median and the largest batch: with train.batch_tokens their sizes differ."""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes that training holds at the same time; activations: tensors saved for backward of one micro-batch."""

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class StepFlops:
    """One step. flops: matrix products of forward and backward pass. tokens: without padding."""

    flops: int
    tokens: int


@dataclass(frozen=True)
class StepTiming:
    """seconds: the median step. warmup: extra seconds of the first steps in total. peak_bytes: see `peak_bytes`."""

    seconds: float
    warmup: float
    peak_bytes: int


def median_step(training: Training) -> int:
    """The index of the first step with the median number of tokens, among the first INSPECTED_STEPS."""
    tokens = [
        sum(batch.counts["tokens"] for batch in training.feed.micro_batches(step)) for step in range(INSPECTED_STEPS)
    ]
    return tokens.index(statistics.median_low(tokens))


def step_flops(parts: Parts, training: Training) -> StepFlops:
    """FLOPs of the median step; the head counts at target positions only, a stream without its memory."""
    batches = training.feed.micro_batches(median_step(training))
    return StepFlops(parts.flops_of(batches), sum(batch.counts["tokens"] for batch in batches))


def memory_of(parts: Parts, training: Training) -> MemoryUse:
    """Sizes of tensors before training; excludes the process, torch and temporary buffers."""
    batches = (batch for step in range(INSPECTED_STEPS) for batch in training.feed.micro_batches(step))
    largest = max(batches, key=lambda batch: batch.inputs.ids.numel()).to(parts.setup.device)
    parts.task.train()
    return MemoryUse(
        weights=sum(
            t.numel() * t.element_size() for t in [*parts.model.weights().values(), *parts.objective_tensors().values()]
        ),
        gradients=sum(p.numel() * p.element_size() for p in parts.trainable.parameters() if p.requires_grad),
        optimizer=sum(t.numel() * t.element_size() for t in training.optimizer.state_tensors().values()),
        activations=saved_bytes(lambda: parts.task(largest, None), parts.setup, parts.task),
    )


def measure_steps(training: Training, seconds: float) -> StepTiming:
    """Train for `seconds`, at least `MIN_TIMED_STEPS` steps after warmup, at most to the end of the run."""
    ends = [0.0]
    for report in train(training):
        ends.append(report.seconds)  # since the start of training
        if len(ends) > WARMUP_STEPS + MIN_TIMED_STEPS and ends[-1] - ends[WARMUP_STEPS] >= seconds:
            break
    durations = [end - begin for begin, end in pairwise(ends)]
    median = statistics.median(durations[WARMUP_STEPS:] or durations)
    warmup = sum(durations[:WARMUP_STEPS]) - median * min(WARMUP_STEPS, len(durations))
    return StepTiming(median, max(0.0, warmup), peak_bytes(training.setup.device))


def peak_bytes(device: torch.device) -> int:
    """Peak memory so far: of tensors on a GPU, else the resident memory of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
