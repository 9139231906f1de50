"""What converting a trained GPT to Performer attention costs: KL divergence and loss by the number of features.

    python -m tests.benchmarks.conversion FOLDER [--text FILE]

Trains `gpt-char` with three seeds on FILE (default: the built-in corpus), converts each run with 16 to 256 features,
and trains the results for a tenth of the steps. Each figure is written to FOLDER/conversion.json as soon as it is
known; the same command continues. About 15 minutes on 2 cores.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

SEEDS, FEATURES, STEPS = (1, 2, 3), (16, 32, 64, 128, 256), 840
COLUMNS = ("KL", "loss before", "after", f"after {STEPS // 10} steps")


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.conversion", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--text", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    text = [] if given.text is None else [f"data.train={given.text.resolve()}", "data.split=tail 10%"]
    record = given.folder / "conversion.json"
    found: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {}
    for seed in SEEDS:
        original = f"gpt-{seed}"
        for features in FEATURES:
            if (key := f"{features} {seed}") not in found:
                minitf(
                    given.folder, "pretrain", "gpt-char", *text, f"train.seed={seed}", "log.samples=0", "-n", original
                )
                found[key] = measure(given.folder, original, f"favor-{features}-{seed}", features, text)
                record.write_text(json.dumps(found, indent=1))
                print(key, found[key], flush=True)
    print(table(found))


def measure(folder: Path, original: str, name: str, features: int, text: list[str]) -> dict[str, float]:
    settings = ["model.attention.kind=favor", f"model.attention.features={features}"]
    converted = minitf(folder, "convert", original, *settings, "-n", name)
    more = [f"train.steps={STEPS // 10}", "log.samples=0", "-n", f"{name}-more"]
    trained = minitf(folder, "pretrain", "gpt-char", *text, f"model.init_from={name}", *more)
    return {
        "kl": converted["kl"],
        "before": converted["before.loss"],
        "after": converted["loss"],
        "trained": trained["val.loss"],
    }


def minitf(folder: Path, *arguments: str) -> dict[str, float]:
    """The metrics that a command prints with --json."""
    line = [sys.executable, "-m", "mini_tf", *arguments, "-q", "--json"]
    done = subprocess.run(line, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    metrics: dict[str, float] = json.loads(done.stdout)["metrics"]
    return metrics


def table(found: dict[str, Any]) -> str:
    """Means and standard deviations over the seeds, as Markdown."""
    lines = [f"| features | {' | '.join(COLUMNS)} |", "| --- " * (1 + len(COLUMNS)) + "|"]
    for features in FEATURES:
        runs = [found[f"{features} {seed}"] for seed in SEEDS]
        cells = [[run[name] for run in runs] for name in ("kl", "before", "after", "trained")]
        shown = [f"{statistics.fmean(cell):.3f} ± {statistics.stdev(cell):.3f}" for cell in cells]
        lines.append(f"| {features} | {' | '.join(shown)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
