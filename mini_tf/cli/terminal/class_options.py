"""Options on classes and tags of `minitf predict` and `minitf evaluate`."""

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import typer

from mini_tf.recipe.values import no_such_class
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
    from mini_tf.pipelines import PredictOptions

    settings = trained.recipe.objective.pipeline()
    given = ["--top"] * (top is not None) + ["--threshold"] * bool(thresholds)
    if given and (settings is None or not settings.PREDICTS_CLASSES):
        trained_with = f"{trained.folder.name} was trained with the objective {trained.recipe.objective.kind}"
        raise UsageFault(f"{given[0]} needs classes or tags, but {trained_with}", hint="remove it")
    found: dict[str | None, float] = {}
    for one in thresholds:
        named, _, text = one.rpartition("=")
        name = named if "=" in one else None
        if name is not None and trained.labels is not None and name not in trained.labels.names:
            raise UsageFault(f"--threshold {one}: {no_such_class(name, trained.labels.names)}")
        if name in found:
            raise UsageFault(
                f"--threshold {one}: a second threshold of {'all classes' if name is None else name}",
                hint="remove one of them",
            )
        found[name] = _probability(one, text)
    return PredictOptions(top, found)


def _probability(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise UsageFault(
            f"--threshold {option}: must be a probability from 0 to 1", hint="0.8, or CLASS=0.3 for one class"
        )
    return value
