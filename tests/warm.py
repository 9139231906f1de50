"""Does before forks what each of them would do anew."""

import gc
import importlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import mini_tf
from mini_tf.cli import app
from mini_tf.drawing.curves import loss_curves

OTHERS = (
    *("sacrebleu", "sklearn.metrics", "rouge_score.rouge_scorer", "seqeval.metrics"),
    *("torch._dynamo", "torch.distributed.fsdp", "transformers.models.auto"),
)
"""Libraries that commands import where they need them, if they are there."""


@cache
def warm() -> None:
    """Import all of mini_tf, read the options of all commands, and draw, which looks for fonts."""
    root = Path(mini_tf.__file__).parent
    for file in sorted(root.rglob("*.py")):  # papers have no __init__.py
        if file.name != "__main__.py":
            importlib.import_module(
                ".".join(file.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")
            )
    for name in OTHERS:
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    _read_options(app._program())
    loss_curves({"warm": ([(1, 1.0)], [(1, 1.0)])}, "nats", "png")
    gc.freeze()  # no fork looks at it


def _read_options(command: Any) -> None:
    assert command.params is not None
    for one in getattr(command, "commands", {}).values():
        _read_options(one)
