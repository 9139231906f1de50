"""What pretraining is worth on few labels: one recipe from scratch and from a pretrained run, on the same labels, seed
by seed.

python -m tests.benchmarks.few_labels --train train.tsv --dev dev.tsv --begin mlm=outputs/mlm docs=outputs/docs --out
few.json

Every run is the recipe's last step (nothing is chosen on the way), judged once on --dev. From scratch the recipe takes
the tokenizer of the first pretrained run, which must be of the recipe's own shape, so that there only the weights
differ; others bring a tokenizer of their own. Each seed draws its own labels, the same for all sides. The figures are
in --out (`experiments.py`).
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from .experiments import Figures, difference, minitf

STEPS = {200: 250, 1000: 400}
"""train.steps of sst2-nano for so many labels, unless --steps names others; with all labels the recipe has its own."""


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.few_labels", description=__doc__)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--recipe", default="sst2-nano")
    parser.add_argument("--begin", nargs="+", required=True, metavar="NAME=RUN", help="pretrained runs")
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[200, 1000, 0], metavar="N", help="numbers of labels; 0 = all"
    )
    parser.add_argument("--steps", nargs="+", default=[], metavar="N=STEPS", help="train.steps for so many labels")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further overrides, for all sides")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    asked = parser.parse_args()
    figures, sides = Figures(asked.out), {"scratch": "", **dict(word.split("=", 1) for word in asked.begin)}
    for size in asked.sizes:
        for seed in range(asked.seeds):
            for name, run in sides.items():
                figures.once(f"{size or 'all'}/{name}/{seed}", _accuracy, asked, size, seed, run)
    for size in asked.sizes:
        print(_table(figures, size or "all", list(sides), asked.seeds))


def _accuracy(asked: argparse.Namespace, size: int, seed: int, run: str) -> float:
    """Train on labels that the seed draws, and judge on the other file."""
    lines = asked.train.read_text().splitlines(keepends=True)
    train = asked.out.parent / f"labels-{size or 'all'}-{seed}.tsv"
    train.write_text("".join(Random(seed).sample(lines, size) if size else lines))
    first = asked.begin[0].split("=", 1)[1]
    begins = [f"model.init_from={run}"] if run else [f"tokenizer={{path: {first}}}"]
    steps = STEPS | {int(n): int(given) for n, given in (word.split("=") for word in asked.steps)}
    horizon = [f"train.steps={steps.get(size, 800)}"] if size else []
    overrides = [f"data.train={train}", "eval.every_steps=null", f"train.seed={seed}", *begins, *horizon, *asked.set]
    folder = asked.out.parent / f"run-{size or 'all'}-{seed}-{Path(run).name or 'scratch'}"
    minitf("finetune", asked.recipe, *overrides, "-d", str(folder))
    return float(minitf("evaluate", str(folder), "--data", str(asked.dev))["accuracy"])


def _table(figures: Mapping[str, float], size: object, sides: Sequence[str], seeds: int) -> str:
    accuracy = {name: [figures[f"{size}/{name}/{seed}"] for seed in range(seeds)] for name in sides}
    lines = [f"{size} labels, {seeds} seeds"]
    for name, values in accuracy.items():
        line = f"  {name:<10} mean {statistics.mean(values):.4f}  median {statistics.median(values):.4f}"
        lines.append(line + f"  against {sides[0]} {difference(values, accuracy[sides[0]])}" * (name != sides[0]))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
