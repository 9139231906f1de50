"""Does before forks what each of them would do anew."""

import gc
import importlib
import pkgutil
from functools import cache

import mini_tf
from mini_tf.cli import app
from mini_tf.drawing.curves.loss import loss_curve

OTHERS = (
    *("sacrebleu", "sklearn.metrics", "rouge_score.rouge_scorer", "seqeval.metrics"),
    *("torch._dynamo", "torch.distributed.fsdp", "transformers.models.auto"),
)
"""Libraries that commands import where they need them."""


@cache
def warm() -> None:
    """Import all of mini_tf, read the options of all commands, and draw, which looks for fonts."""
    for module in pkgutil.walk_packages(mini_tf.__path__, "mini_tf."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    for name in OTHERS:
        importlib.import_module(name)
    app._program()
    loss_curve([(1, 1.0)], [(1, 1.0)], "warm", "nats")
    gc.freeze()  # no fork looks at it
