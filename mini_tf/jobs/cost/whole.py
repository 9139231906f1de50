"""All that a run would take: parameters, work, memory, speed against what the machine can do, and the time until it is finished."""

import time
from dataclasses import dataclass
from typing import Any

from mini_tf.jobs.cost.overhead import Overhead, how_often, overhead_of
from mini_tf.jobs.cost.steps import MemoryUse, Pace, StepFlops, memory_of, pace_of, step_flops
from mini_tf.jobs.parts import Parts, training_of
from mini_tf.training.due import EvaluationSchedule
from mini_tf.training.machine.peak import peak_flops
from mini_tf.training.optimizer import build as build_optimizer
from mini_tf.training.schedule import Horizon

MEASURED_SECONDS = 5.0
"""How long steps are timed, where nobody says otherwise."""
IMPORTS = time.process_time()
"""Seconds that this process had taken when all it needs was imported: the work of one thread, so they passed on the clock too."""


@dataclass(frozen=True)
class Cost:
    """found: how the machine would be used (`Setup.settings`). peak: operations a second of the best product, in the type
    that products are computed in. counts, seconds: how often a run does what, and how long it takes in all, by the same names.
    seeds: there are so many runs one after the other; `seconds` are those of all, `counts` of one.
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
    """opening: seconds it took to read the text and build the model, which is trained here for `seconds`; then nobody wants it."""
    recipe, setup = parts.recipe, parts.setup
    training = training_of(parts, (), build_optimizer(recipe.optimizer, parts.trainable, setup.compute_dtype))
    work, memory = step_flops(parts, training), memory_of(parts, training)
    pace = pace_of(training, MEASURED_SECONDS if seconds is None else seconds)
    overhead = overhead_of(parts, memory.optimizer)
    counts, times = whole_run(parts.evaluations, parts.schedule.horizon, pace.seconds, overhead)
    times = {"start": IMPORTS + opening, "warm_up": pace.warm_up, **times}
    return Cost(
        found=setup.settings,
        parameters=sum(p.numel() for p in parts.trainable.parameters()),
        work=work,
        memory=memory,
        pace=pace,
        peak=peak_flops(setup.device, setup.compute_dtype),
        counts=counts,
        seconds={name: recipe.train.seeds * each for name, each in times.items()},
        seeds=recipe.train.seeds,
    )


def whole_run(due: EvaluationSchedule, horizon: Horizon, step: float, overhead: Overhead) -> tuple[dict[str, int], dict[str, float]]:
    """How often a run does what, and the seconds of it in all; `step`: those of a step.

    Where the clock decides, what is done on the way takes from its time.
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


def _steps_within(due: EvaluationSchedule, seconds: float, step: float, overhead: Overhead) -> int:
    """Steps in so many seconds, of which evaluations, samples and checkpoints before the last ones take their part."""
    steps = max(1, int(seconds / step))
    for _ in range(20):  # how many they are depends on the steps again; it settles quickly
        evaluations, saves = how_often(due, steps, seconds)
        between = (evaluations - 1) * (overhead.evaluation + overhead.sample) + (saves - 1) * overhead.save
        steps = max(1, int(seconds / (step + between / steps)))
    return steps
