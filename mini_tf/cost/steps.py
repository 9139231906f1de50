"""What is measured with the run's own model and data: FLOPs, memory and time of training steps, and the time of what a
run does beside them (evaluations, samples, checkpoints, plots), each timed once.
"""

import contextlib
import math
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise

import torch

from mini_tf.jobs.parts import Parts
from mini_tf.jobs.samples import Samples
from mini_tf.pipelines import pipeline_of
from mini_tf.recipe.sections import Checkpoint
from mini_tf.run.disk import Disk
from mini_tf.run.folder import Run
from mini_tf.run.location import save_checkpoint
from mini_tf.run.manifest import Manifest
from mini_tf.run.tensors import CheckpointTensors
from mini_tf.system.cache import cache_folder
from mini_tf.system.safe_files import remove_path, temporary_path
from mini_tf.training.due import EvaluationSchedule
from mini_tf.training.loop import train
from mini_tf.training.machine.memory import saved_bytes
from mini_tf.training.training import Training

WARMUP_STEPS = 2
"""Not timed: memory is allocated, and torch.compile compiles."""
MIN_TIMED_STEPS = 5
INSPECTED_STEPS = 8
"""Steps searched for the median and the largest batch: with train.batch_tokens their sizes differ."""
EVALUATION_SECONDS = 1.0
"""Duration of the timed evaluation, which is extrapolated to all validation data."""
MAX_SAMPLE_TOKENS = 256
"""Maximum length of the timed sample; the time of a longer one is extrapolated."""
MAX_SAVED_BYTES = 1 << 26
"""Maximum size of the timed checkpoint; the time of a larger one is extrapolated."""
PLOTTED_STEPS = 100


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
        weights=weight_bytes(parts),
        gradients=sum(p.nbytes for p in parts.trainable.parameters() if p.requires_grad),
        optimizer=sum(tensor.nbytes for tensor in training.optimizer.state_tensors().values()),
        activations=saved_bytes(lambda: parts.task(largest, None), parts.setup, parts.task),
    )


def weight_bytes(parts: Parts) -> int:
    return sum(tensor.nbytes for tensor in [*parts.model.weights().values(), *parts.objective_tensors().values()])


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


@dataclass(frozen=True)
class Overhead:
    """Seconds of each, done once.

    evaluation: during training. full_evaluation: on all validation data. closing: plots, final scores, closing lines.
    """

    evaluation: float
    full_evaluation: float
    sample: float
    save: float
    closing: float


def measure_overhead(parts: Parts, state_bytes: int) -> Overhead:
    """Time each kind of overhead; state_bytes: size of the optimizer state. Written files are removed."""
    tokens = parts.validation_tokens
    rate = _evaluation_tokens_per_second(parts, tokens)
    pipeline = parts.recipe.objective.pipeline()
    if pipeline is not None and pipeline.GENERATION_METRICS:
        (sample, last), text = _time_scored_texts(parts), ""
    else:
        (sample, text), last = _time_sample(parts), 0.0
    return Overhead(
        evaluation=parts.sample_size / rate,
        full_evaluation=tokens / rate,
        sample=sample,
        save=_time_save(weight_bytes(parts), state_bytes, parts.recipe.checkpoint),
        closing=_time_plots() + last + _seconds(partial(Samples(parts, lambda line: None).copied, text)),
    )


def count_evaluations_and_saves(due: EvaluationSchedule, steps: int, seconds: float | None) -> tuple[int, int]:
    """Numbers of evaluations and checkpoints of a run, including those after the last step.

    Every evaluation counts as the best so far, which saves a checkpoint. seconds: the time limit of the run, or None.
    """
    recipe = due.recipe
    timed = seconds is not None and recipe.eval.every_steps == "auto"
    period = max(1, steps // due.count_within(seconds or 0.0)) if timed else due.interval(steps)
    evaluations = math.ceil(steps / period)
    saves = recipe.checkpoint.every_steps
    others = steps // saves - steps // math.lcm(saves, period) if isinstance(saves, int) else 0
    return evaluations, evaluations + others


def _evaluation_tokens_per_second(parts: Parts, tokens: int) -> float:
    """Measured after a warmup batch."""
    batch = parts.setup.micro_batch_size * parts.recipe.train.context
    n_tokens = min(tokens, batch * max(1, int(EVALUATION_SECONDS / _time_evaluation(parts, min(tokens, batch)))))
    return n_tokens / _time_evaluation(parts, n_tokens)


def _time_evaluation(parts: Parts, tokens: int) -> float:
    return _seconds(partial(parts.evaluate, tokens))


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _time_sample(parts: Parts) -> tuple[float, str]:
    """Seconds of one sample, and its text; (0.0, "") if the model generates no text."""
    recipe = parts.recipe
    length = min(recipe.generate.max_new_tokens, MAX_SAMPLE_TOKENS)
    for tokens in (2, length):  # two tokens as warmup
        shorter = recipe.model_copy(update={"generate": recipe.generate.model_copy(update={"max_new_tokens": tokens})})
        samples, start = Samples(replace(parts, recipe=shorter), lambda line: None), time.perf_counter()
        text = samples.text()
        seconds = time.perf_counter() - start
    return (0.0, "") if text is None else (seconds * recipe.generate.max_new_tokens / length, text)


def _time_scored_texts(parts: Parts) -> tuple[float, float]:
    """Seconds to generate, score and sample texts at one evaluation, and to score those of all validation examples."""
    pipeline_of(parts).scores(iter([("a", ["a"])]))  # imports the packages of the metrics beforehand
    samples = Samples(parts, lambda line: None)
    scoring, sampling = _seconds(samples.scores), _seconds(samples.text)
    scored = min(parts.recipe.eval.translations, parts.val.n_rows)
    return scoring + sampling, scoring * parts.val.n_rows / scored if scored else 0.0


def _time_save(weights: int, state: int, settings: Checkpoint) -> float:
    """Seconds to save and publish a checkpoint of these sizes in bytes, in the cache folder."""
    share = min(1.0, MAX_SAVED_BYTES / (weights + state))
    model, moments = ({"all": torch.zeros(int(size * share), dtype=torch.uint8)} for size in (weights, state))
    with _temporary_run() as run:
        return (
            _seconds(lambda: save_checkpoint(run, 0, CheckpointTensors(model, moments, {}), {}, 0.0, settings)) / share
        )


@cache
def _time_plots() -> float:
    """Seconds of the plots, mostly for imports; cached, since only the first call includes those."""
    with _temporary_run() as run:
        for step in range(PLOTTED_STEPS):
            run.record({"step": step, "loss": 1.0, "val.loss": 1.0})
        return _seconds(run.plot_losses)


@contextlib.contextmanager
def _temporary_run() -> Iterator[Run]:
    """A run in a temporary folder, which is removed at the end; after a kill, by the next call."""
    folder = temporary_path(cache_folder() / "cost")
    folder.mkdir()
    try:
        run = Run(folder, Manifest(), -1, "new", Disk())
        run.start(existed=True)
        yield run
    finally:
        remove_path(folder)
