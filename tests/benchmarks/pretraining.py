"""What pretraining objectives are worth at equal cost: one model, pretrained in several ways and for several numbers of
steps, is fine-tuned on few examples.

    python -m tests.benchmarks.pretraining PLAN FOLDER [--data FOLDER] [--seeds N]

A seed decides the pretraining run, the examples and the fine-tuning run, and all sides share it. Nothing is chosen
during training: the last step counts, judged on examples that no run has seen. FLOPs are those of pretraining; seconds
are steps times the median time of a step, which `minitf cost` measures in turns. The figures are in FOLDER/PLAN.json
(`experiments.py`). The table has means, differences between the sides seed by seed, and how much less pretraining a
side needs than the first for the same value, interpolated over the logarithm of the cost.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from .experiments import LAST_STEP, Figures, difference, flops_of, minitf, shown

TURNS = 3


@dataclass(frozen=True)
class Plan:
    """recipe: of pretraining, with the overrides of each side; the last side's special tokens are in the tokenizer.
    steps: horizons of pretraining. finetune: recipe and overrides of fine-tuning, whose `metric` is reported. data:
    overrides of `data` for a seed, of pretraining and of fine-tuning.
    """

    recipe: tuple[str, ...]
    sides: Mapping[str, tuple[str, ...]]
    steps: tuple[int, ...]
    finetune: tuple[str, ...]
    metric: str
    data: Callable[[Path, Path | None, int], tuple[list[str], list[str]]]


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.pretraining", description=__doc__)
    parser.add_argument("plan", choices=PLANS)
    parser.add_argument("folder", type=Path, help="of the runs and the figures")
    parser.add_argument("--data", type=Path, help="folder of sst2/ or scitldr/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, nargs="+", help="horizons of pretraining")
    given = parser.parse_args()
    plan, name = PLANS[given.plan], given.folder / given.plan
    steps, figures = given.steps or plan.steps, Figures(Path(f"{name}.json"))
    for seed in range(given.seeds):
        data = plan.data(given.folder, given.data, seed)
        for side, horizon in [("scratch", 0), *((side, horizon) for horizon in steps for side in plan.sides)]:
            figures.once(f"{side} {horizon} {seed}", measure, name, plan, data, side, horizon, seed)
    for turn in range(TURNS):
        for side in plan.sides:
            figures.once(f"seconds {side} {turn}", seconds_per_step, f"{name}-{side}-{steps[0]}-0")
    print(table(figures, plan, steps, given.seeds))


def seconds_per_step(run: str) -> float:
    return float(minitf("cost", run)["seconds_per_step"])


def measure(
    name: Path, plan: Plan, data: tuple[list[str], list[str]], side: str, steps: int, seed: int
) -> dict[str, float]:
    """The metric, and the FLOPs of pretraining. name: the beginning of the names of runs and files."""
    texts, examples = data
    common = [*LAST_STEP, f"train.seed={seed}"]
    tokenizer = Path(f"{name}-tokenizer.json")
    if not tokenizer.exists():
        minitf("tokenizer", "train", *plan.recipe, *[*plan.sides.values()][-1], *texts, "-o", str(tokenizer))
    begin, flops = [f"tokenizer={{path: {tokenizer}}}"], 0.0
    if steps:
        run = Path(f"{name}-{side}-{steps}-{seed}")
        minitf(
            "pretrain", *plan.recipe, *plan.sides[side], *texts, *begin, f"train.steps={steps}", *common, "-d", str(run)
        )
        begin, flops = [f"model.init_from={run}"], flops_of(run)
    tuned = Path(f"{name}-{side}-{steps}-{seed}-tuned")
    minitf("finetune", *plan.finetune, *examples, *begin, *common, "-d", str(tuned))
    return {plan.metric: minitf("evaluate", str(tuned))[plan.metric], "flops": flops}


def table(found: Mapping[str, Any], plan: Plan, steps: Sequence[int], seeds: int) -> str:
    def values(side: str, horizon: int, what: str) -> list[float]:
        return [found[f"{side} {horizon} {seed}"][what] for seed in range(seeds)]

    def mean(side: str, horizon: int, what: str) -> float:
        if what == "seconds":
            return horizon * statistics.median(found[f"seconds {side} {turn}"] for turn in range(TURNS))
        return statistics.mean(values(side, horizon, what))

    first, *others = plan.sides
    lines = [f"{plan.metric}, {seeds} seeds; from scratch {shown(values('scratch', 0, plan.metric))}"]
    for horizon in steps:
        for side in plan.sides:
            flops, seconds = (mean(side, horizon, what) for what in ("flops", "seconds"))
            line = (
                f"  {horizon:>6} steps {side:<12} {flops:.3g} FLOPs {seconds:6.1f} s "
                f" {shown(values(side, horizon, plan.metric))}"
            )
            if side != first:
                of_side, of_first = (values(name, horizon, plan.metric) for name in (side, first))
                line += f"  against {first} {difference(of_side, of_first)}"
            lines.append(line)
    for side in others:
        for what in ("flops", "seconds"):
            curves = [
                [(mean(one, horizon, what), mean(one, horizon, plan.metric)) for horizon in steps]
                for one in (first, side)
            ]
            lines.append(f"  {what} of {first} / {side} to the same {plan.metric}: {factor(*curves)}")
    return "\n".join(lines)


def factor(reference: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]) -> str:
    """How many times the cost `reference` needs for the best value that both curves of (cost, value) reach."""
    value = min(max(value for _, value in reference), max(value for _, value in other))
    costs = [cost_to_reach(value, curve) for curve in (reference, other)]
    return f"{costs[0] / costs[1]:.2f} (at {value:.4f})"


def cost_to_reach(value: float, curve: Sequence[tuple[float, float]]) -> float:
    """The least cost at which the curve, linear over the logarithm of the cost, reaches the value."""
    if curve[0][1] >= value:
        return curve[0][0]
    for (cost, low), (next_cost, high) in pairwise(curve):
        if low < value <= high:
            share = (value - low) / (high - low)
            return math.exp(math.log(cost) + share * (math.log(next_cost) - math.log(cost)))
    return math.inf


def sst2(folder: Path, data: Path | None, seed: int) -> tuple[list[str], list[str]]:
    """The sentences of the training file, and 1,000 of them with their labels."""
    assert data is not None, "--data FOLDER: where sst2/train.tsv is"
    train, dev = (data / "sst2" / name for name in ("train.tsv", "dev.tsv"))
    labelled = folder / f"sst2-{seed}.tsv"
    labelled.write_text("".join(Random(seed).sample(train.read_text().splitlines(keepends=True), 1000)))
    columns = "data.fields={text: 1, label: 0}"
    return [f"data.train={train}", "data.fields={text: 1}", "data.pack=docs"], [
        f"data.train={labelled}",
        f"data.val={dev}",
        columns,
    ]


def world(folder: Path, data: Path | None, seed: int) -> tuple[list[str], list[str]]:
    """Texts of the synthetic world, and 20 others, about 200 sentences, with the class of every noun in its context."""
    labelled = [
        f"data.{split}={{kind: world, n_documents: {n}, seed: {seed}}}"
        for split, n, seed in (("train", 20, 100 + seed), ("val", 400, 1))
    ]
    return ["data.train=world", "data.pack=docs"], [*labelled, "data.fields={text: text, label: supersenses}"]


def scitldr(folder: Path, data: Path | None, seed: int) -> tuple[list[str], list[str]]:
    """The abstracts of the training file, and 300 of them with their summaries."""
    assert data is not None, "--data FOLDER: where scitldr/train.jsonl is"
    lines = (data / "scitldr" / "train.jsonl").read_text().splitlines(keepends=True)
    texts, pairs = folder / "scitldr.jsonl", folder / f"scitldr-{seed}.jsonl"
    texts.write_text(
        "".join(json.dumps({"text": " ".join(filter(None, json.loads(line)["source"]))}) + "\n" for line in lines)
    )
    pairs.write_text("".join(Random(seed).sample(lines, 300)))
    examples = [
        f"data.train={pairs}",
        f"data.val={data / 'scitldr' / 'dev.jsonl'}",
        "data.fields={source: source, target: target}",
    ]
    return [f"data.train={texts}", "data.pack=none", "data.fields={text: text}"], examples


def facts(folder: Path, data: Path | None, seed: int) -> tuple[list[str], list[str]]:
    """Documents of the synthetic world's fact lists, and 300 others with summaries that say each fact once."""
    pairs = [
        f"data.{split}={{kind: world-facts, n_documents: {n}, seed: {seed}}}"
        for split, n, seed in (("train", 300, 100 + seed), ("val", 200, 1))
    ]
    return ["data.train=world-facts", "data.fields={text: source}", "data.pack=none"], pairs


ENCODER = (
    "model.n_layers=2",
    "model.tied=true",
    "train.batch_size=16",
    "optimizer.lr=0.02",
    "optimizer.embedding_lr=0.02",
)
SMALL = ("model.d_model=128", "model.n_heads=4")
ELECTRA = "objective={kind: replaced_token, generator_width: 0.34, weight: 1}"
NOISES = {
    "masking": ("objective={kind: denoising, noise: {kind: mask, rate: 15%}}",),
    "infilling": ("objective={kind: denoising, noise: {kind: infill, rate: 30%, mean_length: 3}}",),
    "BART": (
        "objective={kind: denoising, noise: [{kind: permute_sentences}, {kind: infill, rate: 30%, mean_length: 3}]}",
    ),
    "T5": ("objective={kind: denoising, target: spans, noise: {kind: spans, rate: 15%, mean_length: 3}}",),
}
PLANS = {
    "electra-sst2": Plan(
        ("bert-nano", *ENCODER, "tokenizer={kind: wordpiece, vocab_size: 6000}", "model.dropout_rate=0.2"),
        {"masked": (), "electra": (ELECTRA,)},
        (150, 300, 600),
        ("sst2-nano", "train.steps=400"),
        "accuracy",
        sst2,
    ),
    "electra-world": Plan(
        ("bert-nano", *ENCODER, *SMALL, "tokenizer={kind: wordpiece, vocab_size: 4096}"),
        {"masked": (), "electra": (ELECTRA,)},
        (100, 200, 400, 800),
        ("wnut17-nano", *SMALL, "train.context=128", "train.batch_tokens=1k", "train.steps=100"),
        "accuracy",
        world,
    ),
    "grid-world": Plan(
        ("bert-nano", *ENCODER, *SMALL, "tokenizer={kind: wordpiece, vocab_size: 4096}"),
        {
            "masked": (),
            "replace MLM": (ELECTRA, "objective.loss_on=masked", "objective.loss=softmax"),
            "electra 15 %": (ELECTRA, "objective.loss_on=masked"),
            "all-tokens MLM": (ELECTRA, "objective.loss=softmax_copy"),
            "unigram electra": (ELECTRA, "objective.proposal=unigram"),
            "electra": (ELECTRA,),
        },
        (400,),
        ("wnut17-nano", *SMALL, "train.context=128", "train.batch_tokens=1k", "train.steps=100"),
        "accuracy",
        world,
    ),
    "denoising-scitldr": Plan(
        ("scitldr-nano", "train.batch_tokens=3k"),
        {side: NOISES[side] for side in ("masking", "infilling")},
        (400,),
        ("scitldr-nano", "train.steps=200"),
        "rougeL",
        scitldr,
    ),
    "denoising-world": Plan(
        ("scitldr-nano", "tokenizer={kind: wordpiece, vocab_size: 4096}", "train.batch_tokens=3k"),
        NOISES,
        (400,),
        ("scitldr-nano", "train.batch_tokens=3k", "train.steps=200"),
        "rougeL",
        facts,
    ),
}


if __name__ == "__main__":
    main()
