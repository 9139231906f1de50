"""A toy of conversations for tests: a user says "turn red dog", the assistant "dog red"."""

import json
import random
from collections.abc import Iterable
from pathlib import Path

import yaml
from commands import trained

WORDS = ["red", "dog", "sun", "tree", "blue", "cat", "moon", "fish", "green", "bird"]
RECIPE = """
data: {train: rows.jsonl, split: 5%}
tokenizer: {kind: bpe, vocab_size: 300}
objective: instruct
model:
  {kind: decoder, d_model: 64, n_layers: 2, n_heads: 4, activation: relu2, norm: rms, norm_weight: false, init: zero,
    positions: rotary}
optimizer: {kind: muon, lr: 0.02, head_lr: 0.01, embedding_lr: 0.03, momentum: 0.9, weight_decay: 0, clip: 0}
schedule: {kind: wsd, warmup: 0, decay: 0.5}
train: {steps: 60, batch_size: 32, context: 16}
eval: {translations: 8}
generate: {max_new_tokens: 12}
"""
BY_HEART = ["red", "bird", "red blue", "blue red", "sun tree", "tree sun", "moon dog fish", "fish dog moon"]


def turned(words: str) -> str:
    return " ".join(reversed(words.split()))


def rows_in(file: Path, asked: Iterable[str]) -> Path:
    rows = [{"prompt": f"turn {words}", "response": turned(words)} for words in asked]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def recipe_in(folder: Path) -> Path:
    """The recipe beside its data."""
    draw = random.Random(0)
    rows_in(folder / "rows.jsonl", [" ".join(draw.sample(WORDS, draw.randint(1, 3))) for _ in range(900)])
    (folder / "turning.yaml").write_text(yaml.safe_dump(yaml.safe_load(RECIPE)))
    return folder / "turning.yaml"


def learnt_in(folder: Path) -> Path:
    """A run that has seen nothing but BY_HEART, each sixty times, and answers these as it should: their loss is below
    0.001.
    """
    data = (
        f"data={{train: {rows_in(folder / 'known.jsonl', BY_HEART)}, val:"
        f" {rows_in(folder / 'other.jsonl', ['cat', 'sun dog'])}}}"
    )
    return trained(folder / "run", data, "eval.translations=0", recipe=recipe_in(folder))
