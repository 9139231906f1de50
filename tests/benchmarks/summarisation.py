"""What diminishing cross-attention is worth in summaries: repetition, recall of facts and ROUGE.

    python -m tests.benchmarks.summarisation FOLDER [--seeds N] [--steps N] [--documents N]

Every side trains a model of `scitldr-nano` on world-facts, whose summaries say each fact of a document once, and
generates summaries by beam search, without a ban on repeated n-grams. A seed decides the documents and the run, and all
sides share it; the last step counts, judged on documents that no run has seen. The figures are in
FOLDER/summarisation.json (`experiments.py`). The table has means, and differences from `plain`, seed by seed.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from .experiments import LAST_STEP, Figures, minitf, shown

SIDES = {
    "plain": "kind: softmax",
    "diminishing log1p": "kind: diminishing, function: log1p",
    "diminishing sqrt1p": "kind: diminishing, function: sqrt1p",
    "renormalized": "kind: diminishing, function: log1p, renormalize: true",
}
CROSS = "model.cross_attention={{{}, qk_norm: true, scale: 0.3}}"
COMMON = (
    "tokenizer={kind: wordpiece, vocab_size: 4096}",
    "train.context=192",
    "train.batch_tokens=3k",
    "generate.no_repeat_ngram=0",
)
JUDGED = 200
"""Documents that are judged."""
FIGURES = (
    *("loss", "rouge1", "rouge2", "rougeL", "exact_match"),
    *(f"repetition.{n}" for n in (1, 2, 3, 4)),
    *("facts.recall", "facts.twice", "facts.invented"),
)


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.summarisation", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the runs and the figures")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600, help="of training")
    parser.add_argument("--documents", type=int, default=4000, help="of training")
    given = parser.parse_args()
    figures, seeds = Figures(given.folder / "summarisation.json"), range(given.seeds)
    names = {(side, seed): f"{side} {given.documents} {given.steps} {seed}" for seed in seeds for side in SIDES}
    for (side, seed), name in names.items():
        run = given.folder / name.replace(" ", "-")
        figures.once(name, measure, run, side, given.steps, given.documents, seed)
    print(f"{given.documents} documents, {given.steps} steps, {given.seeds} seeds")
    print(table({side: [figures[names[side, seed]] for seed in seeds] for side in SIDES}))


def measure(run: Path, side: str, steps: int, documents: int, seed: int) -> dict[str, float | None]:
    """The figures of a side. run: the folder, from which an earlier attempt continues."""
    data = [
        f"data.{split}={{kind: world-facts, n_documents: {n}, seed: {one}}}"
        for split, n, one in (("train", documents, 100 + seed), ("val", JUDGED, 1))
    ]
    minitf(
        *("pretrain", "scitldr-nano", *data, *COMMON, CROSS.format(SIDES[side]), *LAST_STEP),
        *(f"train.steps={steps}", f"train.seed={seed}", "eval.translations=0", "-d", str(run)),
    )
    figures = minitf("evaluate", str(run)) | minitf("inspect", "coverage", str(run), "--limit", str(JUDGED))
    return {name: figures[name] for name in FIGURES if name in figures}


def table(figures: Mapping[str, Sequence[Mapping[str, float | None]]]) -> str:
    """A line for each side and figure, which has a value a seed; None, of a model that says nothing, is left out."""
    lines, (first, *_) = list[str](), figures
    for side, of_seeds in figures.items():
        lines.append(side)
        for name in of_seeds[0]:
            pairs = [(own[name], other[name]) for own, other in zip(of_seeds, figures[first], strict=True)]
            values = [own for own, _ in pairs if own is not None]
            differences = [own - other for own, other in pairs if own is not None and other is not None]
            line = f"  {name:<16} {shown(values) if values else '-'}"
            lines.append(line if side == first or not differences else f"{line}  minus {first} {shown(differences)}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
