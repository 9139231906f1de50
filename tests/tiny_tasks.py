"""Tiny labelled data, and runs of a few steps on it, for tests of what is done with trained tasks."""

import json
from pathlib import Path
from typing import Any

from commands import trained

ODD = "odd\x1b[2J\none"
"""A class whose name would clear the terminal."""
THINGS = ("soup", "room", "film", "walk", "song")
OPINIONS = [
    {"text": f"a {word} {thing} number {n}", "label": label, "stars": stars + n / 10}
    for n in range(8)
    for thing in THINGS
    for word, label, stars in (("nice", "good", 4), ("dull", "bad", 1), ("green", ODD, 2.5))
]
NAMES = [
    (f"{name} saw the {thing} in {place} and went home .".split(), ["B-PER", "O", "O", "O", "O", "B-LOC", *"OOOO"])
    for name in ("Anna", "Omar", "Lena", "Igor")
    for thing in THINGS
    for place in ("Oslo", "Lima")
]
SMALL = (
    "model={kind: encoder, d_model: 16, n_layers: 1, n_heads: 2}", "tokenizer={kind: bpe, vocab_size: 280}",
    "train={steps: 30, batch_size: 8, context: 24}", "optimizer={lr: 1e-2}",
)  # fmt: skip


def opinions(file: Path, rows: list[dict[str, Any]] = OPINIONS) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def names(file: Path, rows: list[tuple[list[str], list[str]]] = NAMES) -> Path:
    blocks = ("".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)) for words, tags in rows)
    file.write_text("\n".join(blocks))
    return file


def classifier(folder: Path, *overrides: str) -> Path:
    return task(
        folder,
        f"data={{train: '{opinions(folder / 'opinions.jsonl')}', split: 20%}}",
        "objective.kind=classify",
        *overrides,
    )


def regressor(folder: Path) -> Path:
    file = opinions(folder / "stars.jsonl")
    return task(
        folder, f"data={{train: '{file}', fields: {{text: text, label: stars}}, split: 20%}}", "objective.kind=regress"
    )


def tagger(folder: Path) -> Path:
    return task(folder, f"data={{train: '{names(folder / 'names.conll')}', split: 20%}}", "objective.kind=tag")


def task(folder: Path, *overrides: str) -> Path:
    return trained(folder / "run", *SMALL, *overrides, recipe="bert-nano")
