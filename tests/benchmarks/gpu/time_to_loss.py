"""time to a loss: seconds of a whole process that trains on a text, and its best checkpoint's loss on the last tenth.

    python -m tests.benchmarks.gpu.time_to_loss minitf TEXT
    python -m tests.benchmarks.gpu.time_to_loss nanoGPT TEXT CHECKOUT

The model has the shape of nanoGPT's recipe for a GPU (6 x 384, context 256, 64 rows). nanoGPT runs `train.py
config/train_shakespeare_char.py` as its README says; its time counts whatever its loss. The loss of both is that of all
targets of the last tenth, each predicted once, in windows of 256.
"""

import sys
from pathlib import Path

from ..contest import device
from ..processes import nanogpt_with, run
from ..quality import measure_minitf, score
from .reports import reason, tell

REACH = 1.47
"""Nats: nanoGPT's README says 1.4697 for its recipe."""
SHAPE = (
    "model.n_layers=6", "model.d_model=384", "model.n_heads=6", "model.dropout_rate=0.2", "train.context=256",
    "train.batch_size=64",
    "eval.baseline=false", "log.samples=0",
)  # fmt: skip
OVERRIDES = (
    *("train.steps=600", "optimizer.lr=0.02", "optimizer.embedding_lr=0.05", "optimizer.head_lr=0.005"),
    *("optimizer.weight_decay=0.3", "model.dropout_rate=0.3"),
)
"""Of gpt-char: 1.4689 on an H200 (one run); of five others, of 400 to 700 steps with less decay or dropout,
none came below 1.477.
"""
TINY = {
    "minitf": ("model.n_layers=1", "model.d_model=16", "model.n_heads=2", "train.context=16", "train.batch_size=4",
        "train.steps=4"),
    "nanoGPT": ("--max_iters=2", "--eval_iters=1", "--eval_interval=2", "--block_size=16", "--n_layer=1", "--n_head=2",
        "--n_embd=16",
                "--compile=False", "--dtype=float32"),
}  # fmt: skip


def measure(side: str, text: Path, checkout: Path | None = None, tiny: bool = False) -> None:
    more = TINY[side] if tiny else ()
    try:
        if checkout is not None:
            tell(side, **nanogpt(text, checkout, more))
            return
        words = (*SHAPE, *OVERRIDES, *more, f"runtime.device={device()}")
        figures = measure_minitf("gpt-char", str(text), "1337", *words)
        tell(side, value=figures["seconds"], loss=figures["loss"], choice=figures["detail"], words=words)
    except Exception as error:
        tell(side, failed=reason(error))


def nanogpt(text: Path, checkout: Path, more: tuple[str, ...] = ()) -> dict[str, float]:
    """nanoGPT's own recipe for a GPU."""
    command = [sys.executable, "-u", "train.py", "config/train_shakespeare_char.py", f"--device={device()}", *more]
    with nanogpt_with(text, checkout) as copy:
        finished = run(command, copy.parent, copy)
        loss, targets = score(copy, device())
    return {"value": finished.seconds, "loss": loss, "targets": targets}


if __name__ == "__main__":
    [side, text, *checkout] = [word for word in sys.argv[1:] if word != "--tiny"]
    measure(side, Path(text), *map(Path, checkout), tiny="--tiny" in sys.argv)
