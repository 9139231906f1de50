"""Messages at the end of a run: metrics, epochs, overfitting, text copied from the training data."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from mini_tf.data.store import Store
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.copying import MIN_RUN, copied_share
from mini_tf.recipe.kind_settings.inference_settings import changed_training_keys
from mini_tf.recipe.kind_settings.objectives import ObjectiveSettings

WIDE_GAP = 0.25
"""Overfitting is reported if the gap to the training loss exceeds this share of the validation loss."""
_COMMON = ("loss", "bits_per_byte", "accuracy")


def format_metrics(metrics: Mapping[str, float], objective: ObjectiveSettings) -> str:
    """The main validation metrics, comma-separated."""
    pipeline = objective.pipeline()
    names = (f"val.{name}" for name in (*_COMMON, *(() if pipeline is None else pipeline.SUMMARY_METRICS)))
    return ", ".join(f"{name} {metrics[name]:.4f}" for name in names if name in metrics)


def next_commands(folder: Path, command: str | None, options: str = "") -> str:
    """The commands to try on a finished run. command: of its pipeline; None: none. options: of `minitf evaluate`."""
    shown = quoted(folder)
    return f"next: minitf evaluate {shown}{options}" + (f"; minitf {command} {shown}" if command else "")


def quoted(path: Path) -> str:
    """A path as it is written in a shell, relative to the current folder if it is below it."""
    current = Path.cwd()
    return shlex.quote(str(path.relative_to(current) if path.is_relative_to(current) else path))


def times(number: float) -> str:
    """A number of epochs without exponent: 0.0073, 2.5, 112."""
    return f"{number:,.0f}" if number >= 99.5 else f"{number:.2g}"


def overfitting(epochs: float, train_loss: float, val_loss: float, objective: ObjectiveSettings) -> str:
    """Both losses at the last evaluation, and a hint if the model overfits; none if the losses are not comparable.

    train_loss: mean since the previous evaluation. val_loss: of the last evaluation, possibly on a sample.
    """
    start = f"{times(epochs)} epochs; last evaluation: validation loss {val_loss:.2f}"
    keys = reversed(changed_training_keys(objective))
    unlike = " and ".join(key.removesuffix("_rate").replace("_", " ") for key in keys)
    if unlike:
        return f"{start}, mean training loss with {unlike} {train_loss:.2f}"
    gap = val_loss - train_loss
    hint = (
        "; the model overfits: more training data, fewer steps or dropout would help"
        if gap > WIDE_GAP * val_loss
        else ""
    )
    return f"{start}, mean training loss since the previous evaluation {train_loss:.2f}{hint}"


def copying(sample: str, store: Store, tokenizer: Tokenizer) -> str:
    """The share of a sample that is copied verbatim from the training data, as a sentence."""
    share = copied_share(sample, store, tokenizer)
    data = "the training data" if store.streamed is None else "a sample of the data"
    return f"{share:.0%} of the last sample is copied verbatim from {data} (runs of {MIN_RUN} words or more)"
