"""quality: time to a loss. Whole processes, from their start until the checkpoint is there that is scored.

Both are scored by one protocol: mean nats over all targets of the last tenth of the text, each asked for once, in
windows of 64 (256 for the larger shape) from its first character. nanoGPT's checkpoint is the best by its own estimate,
as its config says.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .contest import RUN, Contest, Options, Side, answer, module
from .peers import MINITF, missing_nanogpt
from .processes import LARGER, nanogpt_command, nanogpt_with, run, temporary_folder
from .texts import text_of

STEPS = {"gpt-char": 124, "gpt-char-fast": 52}
"""train.steps with which the recipes reach the loss, seldom missing it; --steps RECIPE=N says otherwise."""
LARGE = [
    "model.n_layers=6",
    "model.d_model=384",
    "model.n_heads=6",
    "train.context=256",
    "train.batch_size=8",
    "train.time=100s",
]
TELL = ("loss", "seconds")
NOTE = "litgpt and Hugging Face ship no such run of characters, so theirs is not measured"


def contests(options: Options) -> Iterator[Contest]:
    text, missing = text_of(options), missing_nanogpt(options)
    peer = nanogpt(text, options, missing)
    notes = [NOTE, "nanoGPT's time counts whatever its loss"]
    for recipe, n in STEPS.items():
        steps = options.steps.get(recipe, n)
        own = Side(f"minitf {recipe}, {steps} steps", minitf(recipe, text, f"train.steps={steps}"), own=True)
        name = f"time to {options.reach:g} nats, {recipe}"
        reach = {"reach": options.reach, "figure": "seconds"}
        yield Contest(name, "seconds", [own, peer], more=False, tell=TELL, notes=notes, **reach)
    shipped = Side("minitf gpt-char as shipped", minitf("gpt-char", text), own=True)
    name, lowest_loss = "loss after nanoGPT's wall time", {"more": False, "tell": TELL, "figure": "loss"}
    yield Contest(name, "nats", [shipped, peer], **lowest_loss)
    if options.full:
        own = Side("minitf gpt-char, 6x384", minitf("gpt-char", text, *LARGE), own=True)
        peer, name = nanogpt(text, options, missing, "100"), "loss after 100 s of training, 6x384"
        yield Contest(name, "nats", [own, peer], **lowest_loss)


def minitf(recipe: str, text: Path, *overrides: str) -> list[str]:
    return module("quality", "minitf", recipe, text, RUN, *overrides)


def nanogpt(text: Path, options: Options, missing: str, seconds: str = "") -> Side:
    return Side(
        "nanoGPT", module("quality", "nanogpt", text, options.nanogpt or "-", *([seconds] if seconds else [])), missing
    )


def measure(side: str, *words: str) -> dict[str, Any]:
    return measure_minitf(*words) if side == "minitf" else measure_nanogpt(*words)


def measure_minitf(recipe: str, text: str, seed: str, *overrides: str) -> dict[str, Any]:
    """Seconds of `minitf pretrain`, and what `minitf evaluate` says of its checkpoint."""
    where = [f"data.train={text}", "data.split=tail 10%"]
    with temporary_folder() as folder:
        command = [*MINITF, "pretrain", recipe, *where, *overrides, f"train.seed={seed}", "-d", str(folder / "run")]
        trained = run(command, folder)
        metrics = json.loads(run([*MINITF, "evaluate", str(folder / "run"), "--json"], folder).stdout)["metrics"]
        auto = json.loads((folder / "run" / "run.json").read_text()).get("auto", {})
    said = ", ".join(f"{name} {value}" for name, value in auto.items() if name in ("precision", "compile"))
    figures = {name: metrics[name] for name in ("loss", "targets")}
    return {"seconds": trained.seconds, **figures, "detail": said, "command": command}


def measure_nanogpt(text: str, checkout: str, seconds: str = "") -> dict[str, Any]:
    """Seconds of nanoGPT's whole run, and the loss of its checkpoint; with `seconds`, of a 6x384 that trains for about
    so long.
    """
    with nanogpt_with(Path(text), Path(checkout)) as copy:
        words = [*LARGER, *_horizon(copy, float(seconds))] if seconds else []
        command = nanogpt_command(*words)
        finished = run(command, copy.parent, copy)
        loss, targets = score(copy)
    return {"seconds": finished.seconds, "loss": loss, "targets": targets, "command": command}


def _horizon(copy: Path, seconds: float) -> list[str]:
    """As many steps as fit into `seconds`, told by a few that are tried; warmup as large a share as in the shipped
    config.
    """
    tried = run(nanogpt_command(*LARGER, "--max_iters=6", "--log_interval=1", "--eval_iters=1"), copy.parent, copy)
    taken = sorted(
        float(line.split("time ")[1].split("ms")[0]) for line in tried.stdout.splitlines() if " time " in line
    )
    steps = max(1, int(1000 * seconds / taken[len(taken) // 2]))
    return [
        f"--max_iters={steps}",
        f"--lr_decay_iters={steps}",
        f"--eval_interval={steps}",
        f"--warmup_iters={steps // 20}",
    ]


def score(copy: Path, device: str = "cpu") -> tuple[float, int]:
    """Mean nats over all targets of the validation part, each once, and how many they are."""
    sys.path.insert(0, str(copy))
    import model as theirs
    import numpy as np
    import torch

    saved = torch.load(copy / "out-shakespeare-char" / "ckpt.pt", weights_only=True, map_location=device)
    model = theirs.GPT(theirs.GPTConfig(**saved["model_args"])).eval().to(device)
    model.load_state_dict(saved["model"])
    ids = torch.from_numpy(np.fromfile(copy / "data" / "shakespeare_char" / "val.bin", np.uint16).astype(np.int64)).to(
        device
    )
    context, n = saved["model_args"]["block_size"], len(ids) - 1
    whole = n // context * context
    windows = list(
        zip(ids[:whole].view(-1, context).split(256), ids[1 : whole + 1].view(-1, context).split(256), strict=True)
    )
    if whole < n:
        windows.append((ids[None, whole:n], ids[None, whole + 1 :]))
    with torch.no_grad():
        total = sum(float(model(x, y)[1]) * y.numel() for x, y in windows)
    return total / n, n


if __name__ == "__main__":
    answer(measure, sys.argv[1:])
