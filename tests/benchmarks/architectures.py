"""What architectures are worth: models of about equal size, trained for equal time or equal FLOPs.

    python -m tests.benchmarks.architectures PLAN FOLDER [--data FOLDER] [--seeds N] [--seconds S]

The seconds of a step of each side are measured by `minitf cost`, in turns, before any training, and a side gets as many
steps as fit into S seconds, or into the FLOPs of S seconds of the first side, so that a run does not depend on what
else the machine does; a side may also have steps of its own. Everything runs in one thread and in fp32. The figures are
in FOLDER/PLAN.json (`experiments.py`).

corridor: the share of words recalled over 500 fillers, and the tokens in memory. characters: bits per character on the
documentation of Python and, with --data, on tinyshakespeare/. bytes: masked bytes predicted by a perceiver and by an
encoder of equal FLOPs, and the time of a step against the length of a row.
"""

import argparse
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .experiments import LAST_STEP, Figures, minitf, shown

TURNS = 3
DISTANCE = 500
SEEDS, SECONDS = 3, 120.0
MACHINE = ("runtime.threads=1", "runtime.precision=fp32", "runtime.device=cpu")
STREAM = ("data.pack=concat", "train.stream=true")
MEMORY = ("memory.ideal", "memory.real")
FIGURES = ("loss", "accuracy", "bits_per_byte", "answers.accuracy", *MEMORY)


@dataclass(frozen=True)
class Plan:
    """recipe and common: what all sides share, with those of each side. answers: recall is measured. equal: what the
    sides have in common, "seconds" or "flops". steps: of each side, instead. lengths: contexts at which a step is
    timed. converted: sides that begin as the trained model of a side before them with another attention, and what
    their training then changes.
    """

    recipe: str
    common: tuple[str, ...]
    sides: Mapping[str, tuple[str, ...]]
    answers: bool = False
    equal: str = "seconds"
    steps: Mapping[str, int] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    converted: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.architectures", description=__doc__)
    parser.add_argument("plan", choices=PLANS)
    parser.add_argument("folder", type=Path, help="of the runs and the figures")
    parser.add_argument("--data", type=Path, help="folder of tinyshakespeare/, instead of the documentation of Python")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of training, per run")
    given = parser.parse_args()
    name = f"{given.plan}{'-shakespeare' if given.data else ''}"
    plan, figures = PLANS[given.plan], Figures(given.folder / f"{name}.json")
    text = (f"data.train={given.data / 'tinyshakespeare' / 'input.txt'}",) if given.data else ()

    def cost(*words: str) -> dict[str, float]:
        metrics = minitf("cost", plan.recipe, *plan.common, *MACHINE, *text, *words)
        return {key: metrics[key] for key in ("seconds_per_step", "flops_per_step", "parameters")}

    def run_folder(side: str, seed: int) -> Path:
        return given.folder / f"{name}-{side.replace(' ', '-')}-{seed}"

    def measure(side: str, seed: int) -> dict[str, float]:
        run, keys = run_folder(side, seed), (*plan.common, *text, *plan.sides[side])
        if side in plan.converted:
            source, further = plan.converted[side]
            keys = (*converted(run_folder(source, seed), run, keys), *further)
        ended = (*LAST_STEP, f"train.steps={steps[side]}", f"train.seed={seed}")
        minitf("pretrain", plan.recipe, *keys, *MACHINE, *ended, "-d", str(run))
        metrics = minitf("evaluate", str(run)) | {"steps": steps[side]}
        if plan.answers:
            metrics |= minitf("inspect", "answers", str(run)) | memory_of(run)
        return {key: metrics[key] for key in (*FIGURES, "steps") if key in metrics}

    for turn in range(TURNS):
        for side, words in plan.sides.items():
            figures.once(f"cost {side} {turn}", cost, *words)
            for length in plan.lengths:
                figures.once(f"length {side} {length} {turn}", cost, *words, f"train.context={length}")
    steps = steps_of(figures, plan, given.seconds)
    for seed in range(given.seeds):
        for side in plan.sides:
            figures.once(f"{side} {seed}", measure, side, seed)
    print(table(figures, plan, given.seeds, given.seconds))


def converted(source: Path, run: Path, keys: Sequence[str]) -> list[str]:
    """Give the model of `source` the attention of `keys`, and return the keys that train it further."""
    begin = run.with_name(f"{run.name}-begin")
    if not begin.exists():
        minitf("convert", str(source), *(key for key in keys if key.startswith("model.attention")), "-d", str(begin))
    return [f"model.init_from={begin}", *(key for key in keys if not key.startswith(("model", "tokenizer")))]


def memory_of(run: Path) -> dict[str, float]:
    """Tokens in memory: means over the reports of the last tenth of the training; none without a memory that varies."""
    reports = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [one for one in reports if one["step"] > 0.9 * reports[-1]["step"]]
    return {key: statistics.mean(one[key] for one in last if key in one) for key in MEMORY if key in last[-1]}


def median_cost(found: Mapping[str, Any], key: str, figure: str) -> float:
    return statistics.median(found[f"{key} {turn}"][figure] for turn in range(TURNS))


def steps_of(found: Mapping[str, Any], plan: Plan, seconds: float) -> dict[str, int]:
    """Steps of each side, for `seconds` of its own time, or for the FLOPs of so many seconds of the first side."""
    if plan.steps:
        return dict(plan.steps)
    first, *_ = plan.sides
    speed = median_cost(found, f"cost {first}", "flops_per_step") / median_cost(
        found, f"cost {first}", "seconds_per_step"
    )
    budget, figure = (seconds, "seconds_per_step") if plan.equal == "seconds" else (seconds * speed, "flops_per_step")
    return {side: max(1, round(budget / median_cost(found, f"cost {side}", figure))) for side in plan.sides}


def table(found: Mapping[str, Any], plan: Plan, seeds: int, seconds: float) -> str:
    lines = [f"{f'{seconds:g} s of training, equal {plan.equal}, ' * (not plan.steps)}{seeds} seeds"]
    for side in plan.sides:
        figures, key = [found[f"{side} {seed}"] for seed in range(seeds)], f"cost {side}"
        cells = ", ".join(f"{name} {shown([one[name] for one in figures])}" for name in FIGURES if name in figures[0])
        facts = f"{found[f'{key} 0']['parameters']:>9,} parameters, {figures[0]['steps']:>6} steps"
        lines.append(
            f"  {side:<24} {facts}, {1000 * median_cost(found, key, 'seconds_per_step'):.0f} ms per step: {cells}"
        )
        if plan.lengths:
            times = [
                (length, median_cost(found, f"length {side} {length}", "seconds_per_step")) for length in plan.lengths
            ]
            told = ", ".join(f"{length}: {1000 * time:.0f}" for length, time in times)
            lines.append(f"    ms per step by length: {told}; slope {slope(times):.2f}")
    return "\n".join(lines)


def slope(points: list[tuple[int, float]]) -> float:
    """Of a line through the logarithms, by least squares."""
    xs, ys = zip(*((math.log(x), math.log(y)) for x, y in points), strict=True)
    return statistics.linear_regression(xs, ys).slope


def recurrent(d_model: int, *layers: str) -> tuple[str, ...]:
    sizes = (f"model.d_model={d_model}", "model.d_ff=0", "model.init_std=0.05")
    return f"model.attention=[{', '.join(layers)}]", "model.positions=none", *sizes


def transformer(positions: str) -> tuple[str, ...]:
    return "model.attention={kind: softmax, memory_length: 128}", f"model.positions={positions}", "model.d_model=192"


def corridor(mixer: str) -> tuple[str, ...]:
    return f"model.attention={{{mixer}, qk_norm: true, scale: 0.5}}", "model.positions=none"


HEAD, NO_HEAD = "{kind: srupp, memory_length: 128}", "{kind: srupp, attention: false}"


PLANS = {
    "corridor": Plan(
        "quickstart",
        (
            (
                f"data.train={{kind: corridor, n_documents: 4000, distance: {DISTANCE}, n_fillers: 10, repeat_filler:"
                " true}"
            ),
            *(
                "tokenizer={kind: wordpiece, vocab_size: 1024}",
                "model.d_model=64",
                "model.n_layers=1",
                "model.n_heads=4",
            ),
            *("train.context=128", "train.batch_size=16", "optimizer.lr=0.02", "schedule.decay=0.3", *STREAM),
            "model.ngrams=[10000]",  # else a cue word and the answer of the document before, as far away, are the same
        ),
        {
            "memory of 600": corridor("kind: softmax, memory_length: 600, memory_cache: inputs"),
            "memory of 100": corridor("kind: softmax, memory_length: 100, memory_cache: inputs"),
            "expire_span": corridor(
                "kind: expire_span, max_span: 960, ramp: 32, initial_span: 0.995, pre_div: 30, span_loss_weight: 0.0002"
            ),
        },
        answers=True,
        steps={"memory of 600": 1200, "memory of 100": 1200, "expire_span": 600},
        converted={
            "expire_span": (
                "memory of 600",
                ("optimizer.lr=0.002", "optimizer.embedding_lr=0.002", "optimizer.head_lr=0.03"),
            )
        },
    ),
    "characters": Plan(
        "quickstart",
        (
            "tokenizer.kind=char",
            "model.n_layers=4",
            "model.n_heads=6",
            "train.context=128",
            "train.batch_size=24",
            *STREAM,
        ),
        {
            "sru": recurrent(300, "sru"),
            "srupp, one head": recurrent(384, NO_HEAD, NO_HEAD, NO_HEAD, HEAD),
            "srupp, four heads": recurrent(372, HEAD),
            "transformer": transformer("rotary"),
            "transformer, no positions": transformer("none"),
        },
    ),
    "bytes": Plan(
        "perceiver-nano",
        (),
        {
            "perceiver": (),
            "encoder": (
                (
                    "model={kind: encoder, d_model: 96, n_layers: 2, n_heads: 4, activation: relu2, norm: rms,"
                    " norm_weight: false, ngrams: [20000, 50000], positions: {kind: learned}}"
                ),
            ),
        },
        equal="flops",
        lengths=(512, 1024, 2048),
    ),
}


if __name__ == "__main__":
    main()
