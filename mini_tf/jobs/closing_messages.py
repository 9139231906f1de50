"""The closing report of a run: metrics, overfitting, copied text, the next command."""

from collections.abc import Iterator, Mapping

from mini_tf.data.store import Store
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.copying import RUN, copied_share
from mini_tf.recipe.kind_settings import ObjectiveSettings

COPY_CHECK_TOKENS = 10_000_000
"""Training tokens that a sample is compared with at most."""
_PIECE, _OVERLAP = 1 << 16, 1 << 8  # tokens per comparison; eight words are shorter than the overlap
WIDE_GAP = 0.25
"""If validation loss exceeds training loss by this share of it, overfitting is reported."""
_COMMON = ("loss", "bits_per_byte", "accuracy")


def format_metrics(metrics: Mapping[str, float], objective: ObjectiveSettings) -> str:
    """The main validation metrics in one line."""
    pipeline = objective.pipeline()
    names = (f"val.{name}" for name in (*_COMMON, *(() if pipeline is None else pipeline.SPOKEN)))
    return ", ".join(f"{name} {metrics[name]:.4f}" for name in names if name in metrics)


def times(number: float) -> str:
    """A number of epochs: 0.0073, 2.5, 112."""
    return f"{number:,.0f}" if number >= 99.5 else f"{number:.2g}"


def overfitting(epochs: float, train_loss: float, val_loss: float, objective: ObjectiveSettings) -> str:
    """Training and validation loss at the last evaluation, and a hint on overfitting; no hint if the losses are not
    comparable.

    train_loss: the mean since the evaluation before. val_loss: of that evaluation, which may use a sample.
    """
    begin = f"{times(epochs)} epochs; last evaluation: validation loss {val_loss:.2f}"
    unlike = " and ".join(told for name, told in objective.UNLIKE.items() if getattr(objective, name))
    if unlike:
        return f"{begin}, mean training loss with {unlike} {train_loss:.2f}"
    gap = val_loss - train_loss
    verdict = ": overfitting; more data, fewer epochs or dropout may help" if gap > WIDE_GAP * val_loss else ""
    return f"{begin}, mean training loss {train_loss:.2f}{verdict}"


def copying(sample: str, store: Store, tokenizer: Tokenizer) -> str:
    """How much of a sample is copied from the training data."""
    share = copied_share(sample, _documents(store, tokenizer))
    return f"{share:.0%} of the last sample is copied verbatim from the training data (runs of {RUN} words or more)"


def _documents(store: Store, tokenizer: Tokenizer) -> Iterator[str]:
    """The training text in overlapping pieces."""
    left = COPY_CHECK_TOKENS
    for n in range(store.n_documents):
        ids = store.document(n)[:left]
        for first in range(0, max(1, len(ids) - _OVERLAP), _PIECE):
            yield tokenizer.decode(ids[first : first + _PIECE + _OVERLAP])
        left -= len(ids)
        if left <= 0:
            return
