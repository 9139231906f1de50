"""What converting a trained GPT to Performer attention costs: KL divergence and loss by the number of features.

    python -m tests.benchmarks.conversion FOLDER [--text FILE]

Trains `gpt-char` with three seeds on FILE (default: the built-in corpus), converts each run with 16 to 256 features,
and trains the results for a tenth of the steps. The figures are in FOLDER/conversion.json (`experiments.py`). About 15
minutes on 2 cores.
"""

import argparse
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .experiments import Figures, minitf

SEEDS, FEATURES, STEPS = (1, 2, 3), (16, 32, 64, 128, 256), 840
COLUMNS = ("KL", "loss before", "after", f"after {STEPS // 10} steps")


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.conversion", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--text", type=Path)
    given = parser.parse_args()
    text = [] if given.text is None else [f"data.train={given.text.resolve()}", "data.split=tail 10%"]
    figures = Figures(given.folder / "conversion.json")
    for seed in SEEDS:
        for features in FEATURES:
            figures.once(f"{features} {seed}", measure, given.folder, seed, features, text)
    print(table(figures))


def measure(folder: Path, seed: int, features: int, text: list[str]) -> dict[str, float]:
    original, name = f"gpt-{seed}", f"favor-{features}-{seed}"
    minitf("pretrain", "gpt-char", *text, f"train.seed={seed}", "log.samples=0", "-n", original, cwd=folder)
    settings = ["model.attention.kind=favor", f"model.attention.features={features}"]
    converted = minitf("convert", original, *settings, "-n", name, cwd=folder)
    more = [f"train.steps={STEPS // 10}", "log.samples=0", "-n", f"{name}-more"]
    trained = minitf("pretrain", "gpt-char", *text, f"model.init_from={name}", *more, cwd=folder)
    return {
        "kl": converted["kl"],
        "before": converted["before.loss"],
        "after": converted["loss"],
        "trained": trained["val.loss"],
    }


def table(figures: Mapping[str, Any]) -> str:
    """Means and standard deviations over the seeds, as Markdown."""
    lines = [f"| features | {' | '.join(COLUMNS)} |", "| --- " * (1 + len(COLUMNS)) + "|"]
    for features in FEATURES:
        runs = [figures[f"{features} {seed}"] for seed in SEEDS]
        cells = [[run[name] for run in runs] for name in ("kl", "before", "after", "trained")]
        shown = [f"{statistics.fmean(cell):.3f} ± {statistics.stdev(cell):.3f}" for cell in cells]
        lines.append(f"| {features} | {' | '.join(shown)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
