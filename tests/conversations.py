"""A toy of conversations for tests: a user says "turn red dog", the assistant "dog red"; a tiny decoder learns it in seconds."""

import json
import random
from pathlib import Path

import yaml
from commands import trained

WORDS = ["red", "dog", "sun", "tree", "blue", "cat", "moon", "fish", "green", "bird"]
RECIPE = """
data: {train: rows.jsonl, split: 5%}
tokenizer: {kind: bpe, vocab_size: 300}
objective: instruct
model:
  {kind: decoder, d_model: 64, n_layers: 2, n_heads: 4, activation: relu2, norm: rms, norm_weight: false, init: zero, positions: rotary}
optimizer: {kind: muon, lr: 0.02, head_lr: 0.01, embedding_lr: 0.03, momentum: 0.9, weight_decay: 0, clip: 0}
schedule: {kind: wsd, warmup: 0, decay: 0.5}
train: {steps: 120, batch_size: 32, context: 16}
eval: {translations: 8}
generate: {max_new_tokens: 12}
"""


def turned(words: str) -> str:
    return " ".join(reversed(words.split()))


def recipe_in(folder: Path) -> Path:
    """The recipe beside its data."""
    draw = random.Random(0)
    asked = [" ".join(draw.sample(WORDS, draw.randint(1, 3))) for _ in range(900)]
    rows = [{"prompt": f"turn {words}", "response": turned(words)} for words in asked]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "turning.yaml").write_text(yaml.safe_dump(yaml.safe_load(RECIPE)))
    return folder / "turning.yaml"


def learnt_in(folder: Path, *changes: str) -> Path:
    """A run that answers as it should."""
    return trained(folder / "run", *changes, recipe=recipe_in(folder))
