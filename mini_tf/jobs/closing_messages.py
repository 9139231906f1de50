"""A few plain words at the end of a run: how good, how many epochs, what was copied, what to do next."""

from collections.abc import Iterator, Mapping

from mini_tf.data.store import Store
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.copying import RUN, copied_share
from mini_tf.recipe.kind_settings import ObjectiveSettings

COPY_CHECK_TOKENS = 10_000_000
"""Of the training text, that a sample is compared with at most."""
_PIECE, _OVERLAP = 1 << 16, 1 << 8  # tokens that are looked at together; eight words are fewer than overlap
WIDE_GAP = 0.25
"""Share of the held-out loss by which it may exceed the training loss before we speak of overfitting."""
_COMMON = ("loss", "bits_per_byte", "accuracy")


def format_metrics(metrics: Mapping[str, float], objective: ObjectiveSettings) -> str:
    """The held-out figures that people ask for first."""
    pipeline = objective.pipeline()
    names = (f"val.{name}" for name in (*_COMMON, *(() if pipeline is None else pipeline.SPOKEN)))
    return ", ".join(f"{name} {metrics[name]:.4f}" for name in names if name in metrics)


def times(number: float) -> str:
    """A number of epochs as people read it: 0.0073, 2.5, 112."""
    return f"{number:,.0f}" if number >= 99.5 else f"{number:.2g}"


def overfitting(epochs: float, train_loss: float, val_loss: float, objective: ObjectiveSettings) -> str:
    """What the distance between the two losses at the last evaluation says; nothing where the objective trains on another loss.

    train_loss: the mean since the evaluation before. val_loss: of that evaluation, which may be one of a sample.
    """
    begin = f"{times(epochs)} epochs; at the last evaluation: validation loss {val_loss:.2f}"
    unlike = " and ".join(told for name, told in objective.TRAINING_ONLY.items() if getattr(objective, name))
    if unlike:
        return f"{begin}, mean training loss with {unlike} {train_loss:.2f}"
    gap = val_loss - train_loss
    verdict = (
        "; the model knows its own text much better: more text, fewer steps or dropout would help" if gap > WIDE_GAP * val_loss else ""
    )
    return f"{begin}, mean training loss since the one before {train_loss:.2f}{verdict}"


def copying(sample: str, store: Store, tokenizer: Tokenizer) -> str:
    """How much of a sample stands in the training text word for word."""
    share = copied_share(sample, _documents(store, tokenizer))
    return f"{share:.0%} of the last sample is copied verbatim from the training data (runs of {RUN} words or more)"


def _documents(store: Store, tokenizer: Tokenizer) -> Iterator[str]:
    """The text in pieces that overlap, since one document may be the whole of it."""
    left = COPY_CHECK_TOKENS
    for n in range(store.n_documents):
        ids = store.document(n)[:left]
        for first in range(0, max(1, len(ids) - _OVERLAP), _PIECE):
            yield tokenizer.decode(ids[first : first + _PIECE + _OVERLAP])
        left -= len(ids)
        if left <= 0:
            return
