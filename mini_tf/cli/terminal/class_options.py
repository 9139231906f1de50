"""Options on classes and tags of `minitf predict` and `minitf evaluate`."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import typer

from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.pipelines import PredictOptions
    from mini_tf.trained.opening import Trained

_decision = partial(typer.Option, rich_help_panel="Classes and tags")
TOP = _decision(
    "--top",
    metavar="N",
    min=1,
    help="Also print the N most probable classes, of tags for each word.",
    show_default=False,
)
THRESHOLD = _decision(
    "--threshold",
    metavar="P|CLASS=P",
    help=(
        "No label where its probability is below P; a class is the label where its probability is at least its P."
        " Repeatable."
    ),
    show_default=False,
)


def class_options(trained: "Trained", top: int | None, thresholds: Sequence[str]) -> "PredictOptions":
    """UsageFault if the run predicts no classes, or a threshold is invalid."""
    from mini_tf.pipelines._commands import predict_options

    return predict_options(trained, top, [_threshold(one) for one in thresholds])


def _threshold(given: str) -> tuple[str | None, float]:
    """The class of P or CLASS=P, and its threshold."""
    named, _, text = given.rpartition("=")
    try:
        return named if "=" in given else None, float(text)
    except ValueError:
        raise UsageFault(
            f"--threshold {given}: must be a probability from 0 to 1", hint="0.8, or CLASS=0.3 for one class"
        ) from None
