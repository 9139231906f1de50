"""The cost of a whole run: parameters, FLOPs, memory, speed, MFU and total time."""

import time
from dataclasses import dataclass
from typing import Any

from mini_tf.jobs.cost.overhead import Overhead, how_often, overhead_of
from mini_tf.jobs.cost.steps import MemoryUse, Pace, StepFlops, memory_of, pace_of, step_flops
from mini_tf.jobs.parts import Parts, training_of
from mini_tf.training.due import Evaluations
from mini_tf.training.machine.peak import peak_flops
from mini_tf.training.optimizer import build as build_optimizer
from mini_tf.training.schedule import Horizon

MEASURED_SECONDS = 5.0
"""Default seconds for timing steps."""
IMPORTS = time.process_time()
"""Seconds of this process until all imports are done."""


@dataclass(frozen=True)
class Cost:
    """found: the setup (`Setup.found`). peak: operations per second of the fastest matrix product in the same type.
    counts, seconds: how often a run does something, and for how long in total, by the same names.
    seeds: number of runs; `seconds` are of all, `counts` of one.
    """

    found: dict[str, Any]
    parameters: int
    work: StepFlops
    memory: MemoryUse
    pace: Pace
    peak: float
    counts: dict[str, int]
    seconds: dict[str, float]
    seeds: int

    @property
    def total(self) -> float:
        """Seconds from the start of the first run to the end of the last."""
        return sum(self.seconds.values())

    @property
    def metrics(self) -> dict[str, float | None]:
        step = self.pace.seconds
        return {
            "parameters": self.parameters,
            "flops_per_token": self.work.flops / self.work.tokens,
            "flops_per_step": self.work.flops,
            "tokens_per_step": self.work.tokens,
            "tokens_per_second": self.work.tokens / step,
            "seconds_per_step": step,
            "mfu": self.work.flops / step / self.peak,
            "peak_flops": self.peak,
            "memory_bytes": self.memory.total,
            **{f"memory_bytes.{name}": size for name, size in vars(self.memory).items()},
            "peak_bytes": self.pace.peak_bytes,
            "steps": self.counts["training"],
            "seeds": self.seeds,
            "seconds": self.total,
            **{f"seconds.{name}": seconds for name, seconds in self.seconds.items()},
            "minutes": self.total / 60,
        }


def cost_of(parts: Parts, opening: float, seconds: float | None = None) -> Cost:
    """opening: seconds to read the data and build the model, which is trained for `seconds` and discarded."""
    recipe, setup = parts.recipe, parts.setup
    training = training_of(parts, (), build_optimizer(recipe.optimizer, parts.trainable, setup.products))
    work, memory = step_flops(parts, training), memory_of(parts, training)
    pace = pace_of(training, MEASURED_SECONDS if seconds is None else seconds)
    overhead = overhead_of(parts, memory.optimizer)
    counts, times = whole_run(parts.evaluations, parts.schedule.horizon, pace.seconds, overhead)
    times = {"start": IMPORTS + opening, "warm_up": pace.warm_up, **times}
    return Cost(
        found=setup.found,
        parameters=sum(p.numel() for p in parts.trainable.parameters()),
        work=work,
        memory=memory,
        pace=pace,
        peak=peak_flops(setup.device, setup.products),
        counts=counts,
        seconds={name: recipe.train.seeds * each for name, each in times.items()},
        seeds=recipe.train.seeds,
    )


def whole_run(due: Evaluations, horizon: Horizon, step: float, overhead: Overhead) -> tuple[dict[str, int], dict[str, float]]:
    """How often a run does something, and for how many seconds; step: seconds of a step.

    With a time limit the overhead reduces the number of steps.
    """
    steps = horizon.steps or _steps_within(due, horizon.seconds or 0.0, step, overhead)
    evaluations, saves = how_often(due, steps, horizon.seconds)
    samples = evaluations if overhead.sample else 0
    seconds = {
        "training": steps * step,
        "evaluation": evaluations * overhead.evaluation,
        "last_evaluation": 0.0 if due.tokens(horizon) is None else overhead.whole,
        "samples": samples * overhead.sample,
        "saving": saves * overhead.save,
        "closing": overhead.closing,
    }
    return {"training": steps, "evaluation": evaluations, "samples": samples, "saving": saves}, seconds


def _steps_within(due: Evaluations, seconds: float, step: float, overhead: Overhead) -> int:
    """Number of steps in so many seconds, minus evaluations, samples and checkpoints."""
    steps = max(1, int(seconds / step))
    for _ in range(20):  # their number depends on the steps; this converges quickly
        evaluations, saves = how_often(due, steps, seconds)
        between = (evaluations - 1) * (overhead.evaluation + overhead.sample) + (saves - 1) * overhead.save
        steps = max(1, int(seconds / (step + between / steps)))
    return steps
