"""The cost of a whole run: parameters, FLOPs, memory, throughput, MFU, and the time of each part.

Measured on the start-up and a few training steps, and extrapolated; the weights are discarded.
"""

import time
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mini_tf.cost.steps import (
    MemoryUse,
    Overhead,
    StepFlops,
    StepTiming,
    count_evaluations_and_saves,
    measure_overhead,
    measure_steps,
    memory_of,
    step_flops,
)
from mini_tf.data.tokenized import reopen
from mini_tf.jobs.assembling import build, load_data
from mini_tf.jobs.messages import Reporter, report_start
from mini_tf.jobs.parts import Parts, training_of
from mini_tf.recipe.recipe import Recipe
from mini_tf.run import finding
from mini_tf.run.metric_files import curve
from mini_tf.system.errors import RunFault
from mini_tf.training.due import EvaluationSchedule
from mini_tf.training.machine.device import resolve_setup
from mini_tf.training.machine.hardware import peak_flops
from mini_tf.training.optimizer import build as build_optimizer
from mini_tf.training.schedule import Horizon

MEASURED_SECONDS = 5.0
"""Default duration of the timed steps."""
IMPORT_SECONDS = time.process_time()
"""CPU time of this process up to this import; single-threaded, so about the elapsed time of all imports."""


class StreamMemory(NamedTuple):
    """Tokens of earlier rows per row and layer.

    bound: the most that any layer can keep. ideal, real: mean over the layers of the tokens that the next token sees,
    and of those kept for the longest row of a batch, at the last report of a run; None if it records none.
    """

    bound: int
    ideal: float | None = None
    real: float | None = None

    @property
    def metrics(self) -> dict[str, float]:
        return {f"stream.{name}": value for name, value in self._asdict().items() if value is not None}


@dataclass(frozen=True)
class Cost:
    """settings: device, precision and other settings (`Setup.settings`). peak: FLOP/s of the fastest matrix product.

    counts, seconds: by part of a run; `counts` of one run, `seconds` summed over all `seeds` of all `folds`.
    """

    settings: dict[str, Any]
    parameters: int
    step_flops: StepFlops
    memory: MemoryUse
    timing: StepTiming
    peak: float
    counts: dict[str, int]
    seconds: dict[str, float]
    seeds: int
    folds: int = 1
    stream: StreamMemory | None = None

    @property
    def run_set(self) -> str:
        """The runs of a set of runs, such as `5 folds of 3 seeds`; "" for a single run."""
        return " of ".join(f"{n} {unit}" for n, unit in ((self.folds, "folds"), (self.seeds, "seeds")) if n > 1)

    @property
    def total(self) -> float:
        """Seconds from the start of the first run to the end of the last one."""
        return sum(self.seconds.values())

    @property
    def metrics(self) -> dict[str, float | None]:
        step, flops = self.timing.seconds, self.step_flops
        return {
            "parameters": self.parameters,
            "flops_per_token": flops.flops / flops.tokens,
            "flops_per_step": flops.flops,
            "tokens_per_step": flops.tokens,
            "tokens_per_second": flops.tokens / step,
            "seconds_per_step": step,
            "mfu": flops.flops / step / self.peak,
            "peak_flops": self.peak,
            "memory_bytes": self.memory.total,
            **{f"memory_bytes.{name}": size for name, size in vars(self.memory).items()},
            "peak_bytes": self.timing.peak_bytes,
            "steps": self.counts["training"],
            "seeds": self.seeds,
            "folds": self.folds,
            "seconds": self.total,
            **{f"seconds.{name}": seconds for name, seconds in self.seconds.items()},
            "minutes": self.total / 60,
            **({} if self.stream is None else self.stream.metrics),
        }


def estimate(recipe: Recipe, reporter: Reporter, seconds: float | None = None) -> Cost:
    """Build the parts of the run, train for `seconds` (default 5), and extrapolate; the weights are discarded."""
    data = load_data(recipe, reporter)
    start = time.monotonic()
    reopen(recipe.data, data.tokenizers, recipe.objective, data.hashes)  # timed from the cache, as in a run
    parts = build(recipe, data, resolve_setup(recipe.runtime), reporter.detail)
    report_start(parts, reporter)
    return measure_cost(parts, time.monotonic() - start, seconds)


def measure_cost(parts: Parts, opening: float, seconds: float | None = None) -> Cost:
    """Train for `seconds` and time the overhead; opening: seconds to read the data and build the model."""
    recipe, setup = parts.recipe, parts.setup
    training = training_of(parts, (), build_optimizer(recipe.optimizer, parts.trainable, setup.compute_dtype))
    flops, memory = step_flops(parts, training), memory_of(parts, training)
    timing = measure_steps(training, MEASURED_SECONDS if seconds is None else seconds)
    overhead = measure_overhead(parts, memory.optimizer)
    counts, times = run_time(parts.evaluations, parts.schedule.horizon, timing.seconds, overhead)
    times = {"start": IMPORT_SECONDS + opening, "warm_up": timing.warmup, **times}
    folds = recipe.data.split.folds or 1 if recipe.data.split.is_set else 1
    return Cost(
        settings=setup.settings,
        parameters=sum(p.numel() for p in parts.trainable.parameters()),
        step_flops=flops,
        memory=memory,
        timing=timing,
        peak=peak_flops(setup.device, setup.compute_dtype),
        counts=counts,
        seconds={name: recipe.train.seeds * folds * each for name, each in times.items()},
        seeds=recipe.train.seeds,
        folds=folds,
    )


def run_time(
    due: EvaluationSchedule, horizon: Horizon, step: float, overhead: Overhead
) -> tuple[dict[str, int], dict[str, float]]:
    """Counts and total seconds by part of a run; step: seconds of a training step.

    With a time limit, evaluations, samples and checkpoints during training count against it.
    """
    steps = horizon.steps or _steps_within(due, horizon.seconds or 0.0, step, overhead)
    evaluations, saves = count_evaluations_and_saves(due, steps, horizon.seconds)
    samples = evaluations if overhead.sample else 0
    seconds = {
        "training": steps * step,
        "evaluation": evaluations * overhead.evaluation,
        "last_evaluation": 0.0 if due.tokens(horizon) is None else overhead.full_evaluation,
        "samples": samples * overhead.sample,
        "saving": saves * overhead.save,
        "closing": overhead.closing,
    }
    return {"training": steps, "evaluation": evaluations, "samples": samples, "saving": saves}, seconds


def _steps_within(due: EvaluationSchedule, seconds: float, step: float, overhead: Overhead) -> int:
    """The most steps within a time limit, with the evaluations, samples and checkpoints before the last ones."""

    def is_over(steps: int) -> bool:
        evaluations, saves = count_evaluations_and_saves(due, steps, seconds)
        between = (evaluations - 1) * (overhead.evaluation + overhead.sample) + (saves - 1) * overhead.save
        return steps * step + between > seconds

    return max(1, bisect_left(range(1, int(seconds / step) + 1), True, key=is_over))


def stream_memory(recipe: Recipe, source: str | None) -> StreamMemory | None:
    """None without `train.stream`, or if no layer keeps tokens. source: what names the recipe, possibly a run."""
    bounds = [bound for mixer in recipe.model.mixers() if (bound := mixer.memory_bound) is not None]
    if not recipe.train.stream or not bounds:
        return None
    run = None if source is None else _run(source)
    curves = [[] if run is None else curve(run / "metrics.jsonl", f"memory.{name}") for name in ("ideal", "real")]
    return StreamMemory(max(bounds), *(points[-1][1] if points else None for points in curves))


def _run(source: str) -> Path | None:
    try:
        return finding.find(source)
    except RunFault:  # a shipped recipe or a file
        return None
