"""What a person wants to know of a text before a model learns from it: how much there is, which labels it has, how long it is."""

from collections.abc import Iterator

import numpy as np

from mini_tf.data.example_store import ExampleStore, ExampleText
from mini_tf.data.opening import AnyText
from mini_tf.data.pair_store import PairText
from mini_tf.data.token_store import TokenStore
from mini_tf.system.safe_text import safe_text
from mini_tf.system.strict_json import short

MOST = 12
"""Labels that are told one by one."""


def summary(text: AnyText) -> Iterator[str]:
    """A few lines about both sides of a text."""
    if isinstance(text, PairText):
        yield f"pairs: {text.train.n_documents:,} to learn from, {text.val.n_documents:,} held out"
        yield f"lengths of sources: {_lengths(text.train.source)}"
        yield f"lengths of targets: {_lengths(text.train.target)}"
        return
    if not isinstance(text, ExampleText):
        yield f"text: {len(text.train):,} tokens to learn from, {len(text.val):,} held out"
        return
    yield f"examples: {text.train.n_documents:,} to learn from, {text.val.n_documents:,} held out"
    yield f"lengths: {_lengths(text.train.tokens)}"
    labels = text.labels
    if labels.names:
        held_out = _counts(text.val, len(labels.names))
        order = np.argsort([-count for count in labels.counts], kind="stable")[:MOST]
        told = ", ".join(f"{_named(labels.names[n])} {labels.counts[n]:,} (+{held_out[n]:,})" for n in order)
        yield f"labels: {told}{f' and {len(labels.names) - MOST} more' if len(labels.names) > MOST else ''}"
        if missing := [name for name, count in zip(labels.names, labels.counts, strict=True) if not count]:
            yield f"no example to learn from: {', '.join(map(_named, missing[:MOST]))}"
    elif text.train.form == "numbers":
        yield f"labels: mean {labels.mean:.4g}, standard deviation {labels.scale:.4g}"
    elif text.train.form == "turns":
        yield f"asked for: {text.train.n_asked:,} of {len(text.train):,} tokens"


def _named(label: str) -> str:
    """A label on one line, cut where it is long."""
    return safe_text(short(label)).replace("\n", "\\n").replace("\t", "\\t")


def _lengths(store: TokenStore) -> str:
    half, most, longest = np.quantile(store.lengths, [0.5, 0.95, 1.0]).astype(int).tolist()
    return f"half have at most {half} tokens, 95 % at most {most}, the longest {longest}"


def _counts(store: ExampleStore, n: int) -> list[int]:
    """How often each class stands in a store."""
    asked = np.asarray(store.labels)
    counts: list[int] = np.bincount(asked[~np.isnan(asked)].astype(int), minlength=n).tolist()
    return counts
