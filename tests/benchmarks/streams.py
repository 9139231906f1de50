"""What memory and recurrence are worth: models of about equal size, trained for equal time on a stream.

    python -m tests.benchmarks.streams PLAN FOLDER [--data FOLDER] [--seeds N] [--seconds S]

The seconds of a step of each side are measured by `minitf cost`, in turns, before any training; a side gets as many
steps as fit into S seconds, so that a run does not depend on what else the machine does. Each figure is written to
FOLDER/PLAN.json as soon as it is known, and the same command continues. The table has means over the seeds with the
95 % interval of Student's t.

corridor: the share of words recalled over 500 fillers, and the tokens in memory. characters: bits per character on the
documentation of Python and, with --data, on tinyshakespeare/.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.pretraining import LAST_STEP, minitf, shown

TURNS = 3
DISTANCE = 500
STREAM = ("data.pack=concat", "train.stream=true")
RELATIVE = "model.positions={kind: transformer_xl, max_distance: 640}"


@dataclass(frozen=True)
class Plan:
    """common: overrides of quickstart that all sides share, with those of each side. answers: recall is measured."""

    common: tuple[str, ...]
    sides: Mapping[str, tuple[str, ...]]
    answers: bool = False


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.streams", description=__doc__)
    parser.add_argument("plan", choices=PLANS)
    parser.add_argument("folder", type=Path, help="of the runs and the figures")
    parser.add_argument("--data", type=Path, help="folder of tinyshakespeare/, instead of the documentation of Python")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120, help="of training, per run")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    name = f"{given.plan}{'-shakespeare' if given.data else ''}"
    plan, record = PLANS[given.plan], given.folder / f"{name}.json"
    text = (f"data.train={given.data / 'tinyshakespeare' / 'input.txt'}",) if given.data else ()
    found: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {}

    def measured(key: str, value: Any) -> None:
        found[key] = value
        record.write_text(json.dumps(found, indent=1))
        print(key, value, file=sys.stderr, flush=True)

    for turn in range(TURNS):
        for side, words in plan.sides.items():
            if f"cost {side} {turn}" not in found:
                cost = minitf("cost", "quickstart", *plan.common, *text, *words)
                measured(f"cost {side} {turn}", {key: cost[key] for key in ("seconds_per_step", "parameters")})
    for seed in range(given.seeds):
        for side, words in plan.sides.items():
            if f"{side} {seed}" not in found:
                seconds = statistics.median(found[f"cost {side} {turn}"]["seconds_per_step"] for turn in range(TURNS))
                steps, run = max(1, round(given.seconds / seconds)), given.folder / f"{name}-{side.replace(' ', '-')}-{seed}"
                overrides = (*plan.common, *text, *words, *LAST_STEP, f"train.steps={steps}", f"train.seed={seed}")
                minitf("pretrain", "quickstart", *overrides, "-d", str(run))
                figures = minitf("evaluate", str(run)) | {"steps": steps}
                if plan.answers:
                    figures |= minitf("inspect", "answers", str(run))
                measured(f"{side} {seed}", {key: value for key, value in figures.items() if isinstance(value, int | float)})
    print(table(found, plan, given.seeds, given.seconds))


def table(found: Mapping[str, Any], plan: Plan, seeds: int, seconds: float) -> str:
    lines = [f"{seconds:g} s of training, {seeds} seeds"]
    for side in plan.sides:
        figures, parameters = [found[f"{side} {seed}"] for seed in range(seeds)], found[f"cost {side} 0"]["parameters"]
        names = [name for name in ("accuracy", "memory.ideal", "memory.real", "bits_per_byte", "answers.accuracy") if name in figures[0]]
        cells = ", ".join(f"{name} {shown([one[name] for one in figures])}" for name in names)
        lines.append(f"  {side:<24} {parameters:>9,} parameters, {figures[0]['steps']:>6} steps: {cells}")
    return "\n".join(lines)


def recurrent(d_model: int, *layers: str) -> tuple[str, ...]:
    sizes = (f"model.d_model={d_model}", "model.d_ff=0", "model.init_std=0.05")
    return f"model.attention=[{', '.join(layers)}]", "model.positions=none", *sizes


def transformer(positions: str) -> tuple[str, ...]:
    return "model.attention={kind: softmax, memory_length: 128}", f"model.positions={positions}", "model.d_model=192"


HEAD, NO_HEAD = "{kind: srupp, memory_length: 128}", "{kind: srupp, attention: false}"


PLANS = {
    "corridor": Plan(
        (
            f"data.train={{kind: corridor, n_documents: 4000, distance: {DISTANCE}, n_fillers: 1}}",
            *("tokenizer={kind: wordpiece, vocab_size: 256}", "model.d_model=64", "model.n_layers=2", "model.n_heads=4"),
            *("train.context=128", "train.batch_size=16", *STREAM),
        ),
        {
            "memory of 600": ("model.attention={kind: softmax, memory_length: 600}", RELATIVE),
            "memory of 100": ("model.attention={kind: softmax, memory_length: 100}", RELATIVE),
            "expire_span": (
                "model.attention={kind: expire_span, max_span: 1000, ramp: 64, initial_span: 0.7, pre_div: 8, span_loss_weight: 0.00001}",
                RELATIVE,
            ),
            "sru": ("model.attention=sru", "model.positions=none"),
        },
        answers=True,
    ),
    "characters": Plan(
        ("tokenizer.kind=char", "model.n_layers=4", "model.n_heads=6", "train.context=128", "train.batch_size=24", *STREAM),
        {
            "sru": recurrent(300, "sru"),
            "srupp, one head": recurrent(384, NO_HEAD, NO_HEAD, NO_HEAD, HEAD),
            "srupp, four heads": recurrent(372, HEAD),
            "transformer": transformer("rotary"),
            "transformer, no positions": transformer("none"),
        },
    ),
}


if __name__ == "__main__":
    sys.exit(main())
