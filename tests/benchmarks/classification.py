"""How well a recipe classifies texts, against TF-IDF with logistic regression, by the number of examples.

    python -m tests.benchmarks.classification FOLDER [--data DATA] [--recipe classify-nano] [--sizes 300 1000 5000 0]

The texts are docstrings of the standard library, whose class is the module, whole or their first sentence alone, and,
with --data, the training sentences of SST-2. A fifth of each is held out; of the rest, the first N are the examples
(0: all). The recipe is trained as it is, and the baselines on the same examples; all are judged on the held-out fifth.
With --dev the sentences of SST-2's development set are judged as well, once for each size. Each figure is written to
FOLDER/classification.json as soon as it is known, and the same command continues.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from mini_tf.baselines._labelled_examples import characters, features, logistic, words
from mini_tf.data.corpora._documentation import docstrings, library
from mini_tf.data.examples import Example

MODULES = (
    "asyncio",
    "email",
    "http",
    "importlib",
    "inspect",
    "logging",
    "multiprocessing",
    "tarfile",
    "tkinter",
    "turtle",
    "unittest",
    "xml",
)
Rows = list[tuple[str, str]]
"""Text and label."""


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.classification", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the runs and the figures")
    parser.add_argument("--data", type=Path, help="folder of sst2/")
    parser.add_argument("--dev", action="store_true", help="judge on SST-2's development set, too")
    parser.add_argument("--recipe", default="classify-nano")
    parser.add_argument("--sets", nargs="+", help="of docstrings, sentences, sst2")
    parser.add_argument("--sizes", type=int, nargs="+", default=[300, 1000, 5000, 0], metavar="N")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides of the recipe")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    record = given.folder / "classification.json"
    found: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {}
    for name, rows in sets(given.data).items():
        cut = len(rows) // 5
        held_out, rest = {"held out": rows[:cut]}, rows[cut:]
        if given.dev and name == "sst2":
            held_out["dev"] = sentences(given.data / "sst2" / "dev.tsv")
        for size in given.sizes if given.sets is None or name in given.sets else ():
            if size < len(rest) and (key := f"{name} {size or len(rest)}") not in found:
                found[key] = measured(given.folder / f"{name}-{size}", given, rest[: size or None], held_out)
                record.write_text(json.dumps(found, indent=1))
                print(key, found[key], file=sys.stderr, flush=True)
    for key, figures in found.items():
        print(f"{key:<18}", *(f"{what} {value:.3f} " for what, value in figures.items()))


def sets(data: Path | None) -> dict[str, Rows]:
    """The sets, each in an order of its own."""
    whole, first = {}, {}
    for module in MODULES:
        folder = library() / module
        for file in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]:
            for text in docstrings(file):
                short = re.split(r"\n\s*\n|(?<=[.])\s", text)[0]
                for texts, part in ((whole, text), (first, short)):
                    if len(part) >= 20:
                        texts.setdefault(" ".join(part.split()), module)
    found = {"docstrings": [*whole.items()], "sentences": [*first.items()]}
    if data is not None:
        found["sst2"] = sentences(data / "sst2" / "train.tsv")
    return {name: Random(0).sample(rows, len(rows)) for name, rows in found.items()}


def sentences(file: Path) -> Rows:
    lines = (line.split("\t", 1) for line in file.read_text().splitlines())
    return [(text, label) for label, text in lines]


def measured(run: Path, given: argparse.Namespace, rows: Rows, held_out: dict[str, Rows]) -> dict[str, float]:
    """Accuracies of the recipe and of the baselines, and the seconds of training, the whole process."""
    begun = time.monotonic()
    fields = "data.fields={text: text, label: label}"
    minitf("finetune", given.recipe, f"data.train={written(run, rows)}", fields, *given.set, "-d", str(run))
    seconds = time.monotonic() - begun
    found = {"seconds": seconds}
    for name, judged in held_out.items():
        figures = minitf("evaluate", str(run), "--data", str(written(Path(f"{run}-{name.replace(' ', '-')}"), judged)))
        found |= {f"{name}": figures["accuracy"]}
        for baseline, vectorizers in {"words": [words()], "characters": [words(), characters()]}.items():
            found[f"{name}, {baseline}"] = accuracy_of(vectorizers, rows, judged)
    return found


def accuracy_of(vectorizers: list[Any], rows: Rows, judged: Rows) -> float:
    """Of logistic regression on TF-IDF features."""
    classes = sorted({label for _, label in rows})
    train, test = ([Example([text], label, "") for text, label in some] for some in (rows, judged))
    fitted, features_of_test = features(vectorizers, train, test)
    numbers = np.array([classes.index(label) for _, label in rows])
    probabilities = logistic(fitted, numbers, features_of_test, len(classes), 10.0)
    found = [classes[n] for n in probabilities.argmax(1)]
    return float(np.mean([one == label for one, (_, label) in zip(found, judged, strict=True)]))


def written(name: Path, rows: Rows) -> Path:
    """The rows as a file."""
    file = name.with_name(f"{name.name}.jsonl")
    file.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    return file


def minitf(*words: str) -> dict[str, Any]:
    """The metrics that a command prints with --json."""
    done = subprocess.run(
        [sys.executable, "-m", "mini_tf", *words, "-q", "--json"], check=True, stdout=subprocess.PIPE, text=True
    )
    metrics: dict[str, Any] = json.loads(done.stdout)["metrics"]
    return metrics


if __name__ == "__main__":
    main()
