"""Loss by position on rows up to eight times as long as the training context.

    python -m tests.benchmarks.long_text FOLDER --text FILE [-o PICTURE]

Trains small GPTs on characters with a context of 64 (mixers by positional encodings), and evaluates each on the last
tenth of FILE in rows of 512, by position. The figures are in FOLDER/long_text.json (`experiments.py`). About 15 minutes
on 2 cores.
"""

import argparse
import math
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F

from mini_tf.drawing.curves import draw_curves
from mini_tf.drawing.panel import Curves
from mini_tf.nn.tokens import Tokens
from mini_tf.trained.opening import open_trained

from .experiments import Figures, minitf

CONTEXT, TIMES, ROWS = 64, 8, 200
MODELS = {
    "softmax, rotary": ["model.attention={kind: softmax, qk_norm: true, scale: 0.3}"],
    "softmax, alibi": ["model.attention={kind: softmax}", "model.positions=alibi"],
    "window 32, rotary": ["model.attention={kind: window, window: 32, qk_norm: true, scale: 0.3}"],
    "window 32, alibi": ["model.attention={kind: window, window: 32}", "model.positions=alibi"],
    "linear, rotary": ["model.attention={kind: linear}"],
    "linear, none": ["model.attention={kind: linear}", "model.positions=none"],
    "favor, rotary": ["model.attention={kind: favor, qk_norm: true, scale: 0.3}"],
    "favor, none": ["model.attention={kind: favor, qk_norm: true, scale: 0.3}", "model.positions=none"],
}


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.long_text", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("-o", type=Path, dest="picture")
    given = parser.parse_args()
    figures = Figures(given.folder / "long_text.json")
    for name, settings in MODELS.items():
        figures.once(name, measure, given.folder, name, settings, given.text.resolve())
    print(table(figures))
    if given.picture is not None:
        title, x = "Loss by position, trained with a context of 64", [CONTEXT * (n + 1) for n in range(TIMES)]
        curves = Curves(title, x, "position (up to)", "nats per character", figures)
        given.picture.write_bytes(draw_curves([curves], given.picture.suffix[1:]))


def measure(folder: Path, name: str, settings: list[str], text: Path) -> list[float]:
    """Train, and return the mean loss of each CONTEXT positions of a row."""
    run = name.replace(", ", "-").replace(" ", "")
    data = [f"data.train={text}", "data.split=tail 10%", "data.pack=concat"]
    more = (f"train.context={CONTEXT}", *settings, "log.samples=0", "-n", run)
    minitf("pretrain", "gpt-char", *data, *more, cwd=folder)
    trained = open_trained(folder / "outputs" / run, device="cpu")
    held_out = text.read_text()[math.ceil(0.9 * len(text.read_text())) :]
    ids = torch.tensor(trained.tokenizer.encode(held_out), dtype=torch.long)
    length = CONTEXT * TIMES
    rows = ids[: ROWS * (length + 1)].view(-1, length + 1)
    losses = []
    with torch.inference_mode():
        for batch in rows.split(20):
            logits = trained.model.logits(trained.model(Tokens(batch[:, :-1])).y)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten(), reduction="none")
            losses.append(loss.view(len(batch), -1))
    return [float(loss) for loss in torch.cat(losses).view(-1, TIMES, CONTEXT).mean((0, 2))]


def table(figures: Mapping[str, list[float]]) -> str:
    columns = [f"{CONTEXT * n + 1}-{CONTEXT * (n + 1)}" for n in range(TIMES)]
    lines = [f"| mixer, positions | {' | '.join(columns)} |", "| --- " * (1 + TIMES) + "|"]
    lines += [f"| {name} | {' | '.join(f'{loss:.2f}' for loss in row)} |" for name, row in figures.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
