"""`minitf data stats`: how much there is of a text, of pairs or of labelled examples, and what stands on both sides."""

from typing import TYPE_CHECKING, Any

from mini_tf.cli.data.reading import open_recipe
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import RECIPE

if TYPE_CHECKING:
    from mini_tf.data.example_store import ExampleStore, ExampleText
    from mini_tf.data.labels import Labels
    from mini_tf.data.pair_store import PairText
    from mini_tf.data.token_store import Text, TokenStore

LISTED = 50
"""Labels that the table names."""


@command
def stats(console: Console, arguments: RECIPE = None) -> None:
    """Documents, tokens, bytes, use of the vocabulary, the longest and shortest documents, what stands on both sides."""
    from mini_tf.data.example_store import ExampleText
    from mini_tf.data.pair_store import PairText

    recipe, text = open_recipe(console, arguments)
    if isinstance(text, PairText):
        table, result = _pair_stats(text, recipe.train.context)
    elif isinstance(text, ExampleText):
        table, result = _example_stats(text, recipe.train.context)
    else:
        table, result = _stats(text)
    console.answer(table, result=result | {"notes": text.notes})


def _stats(text: "Text") -> tuple[str, dict[str, Any]]:
    """What there is in a text, as a table and as JSON says it."""
    sides = {side: _measure(store) for side, store in (("train", text.train), ("val", text.val))}
    shared, size = len(_documents(text.train) & _documents(text.val)), text.tokenizer.vocabulary.size
    lines = [*_columns(sides), f"vocabulary: {size:,} tokens", f"documents on both sides: {shared}"]
    return "\n".join(lines), {**sides, "vocabulary": size, "documents_on_both_sides": shared}


def _pair_stats(text: "PairText", context: int) -> tuple[str, dict[str, Any]]:
    """What there is in pairs, as a table and as JSON says it; a side is a text of its own, with its own vocabulary if it has one."""
    from mini_tf.data.pairing import Pairing

    stores = {"train": text.train, "val": text.val}
    sides = {side: {role: _measure(getattr(store, role)) for role in ("source", "target")} for side, store in stores.items()}
    shared = len(_documents(text.train.source) & _documents(text.val.source))
    counts = {side: {"pairs": store.n_documents, "cut": Pairing(store, context).n_cut} for side, store in stores.items()}
    sizes = {"vocabulary": text.tokenizer.vocabulary.size, "source_vocabulary": text.source_tokenizer.vocabulary.size}
    one = text.tokenizer is text.source_tokenizer
    lines = [
        *_columns({f"{side} {role}": measured for side, roles in sides.items() for role, measured in roles.items()}),
        "pairs: " + ", ".join(f"{side} {counts[side]['pairs']:,}" for side in counts),
        f"pairs longer than train.context {context}: " + ", ".join(f"{side} {counts[side]['cut']:,}" for side in counts),
        f"vocabulary: {sizes['vocabulary']:,} tokens"
        + (" for both sides" if one else f" of the target, {sizes['source_vocabulary']:,} of the source"),
        f"sources on both sides: {shared}",
    ]
    return "\n".join(lines), {side: counts[side] | sides[side] for side in sides} | sizes | {"sources_on_both_sides": shared}


def _example_stats(text: "ExampleText", context: int) -> tuple[str, dict[str, Any]]:
    """What there is in labelled examples, as a table and as JSON says it; a cut example loses a part, or makes several rows."""
    from mini_tf.data.forms import FORMS
    from mini_tf.data.labelling import Labelling
    from mini_tf.drawing.labels import caption

    stores = {"train": text.train, "val": text.val}
    sides = {side: _measure(store.tokens) | {"cut": Labelling(store, context).n_longer} for side, store in stores.items()}
    asked = {side: _asked(store, text.labels) for side, store in stores.items()}
    shared, size = len(text.train.known_by() & text.val.known_by()), text.tokenizer.vocabulary.size
    becomes = {"rows": "makes several rows"}.get(way := FORMS[text.train.form].CUTS, f"loses its {way}")
    lines = [
        *_columns(sides),
        f"cut: longer than train.context {context}; such an example {becomes}",
        f"vocabulary: {size:,} tokens",
        f"{'prompts' if text.train.form == 'turns' else 'examples'} on both sides: {shared}",
        "",
        *_columns({side: {caption(name): asked[side][name] for name in list(asked[side])[:LISTED]} for side in asked}),
    ]
    if (left := len(asked["train"]) - LISTED) > 0:
        lines.append(f"and {left:,} labels more; --json has them all")
    told = {side: sides[side] | {"labels": asked[side]} for side in sides}
    return "\n".join(lines), {**told, "vocabulary": size, "examples_on_both_sides": shared}


def _asked(store: "ExampleStore", labels: "Labels") -> dict[str, float]:
    """How often each class stands in a store; of numbers how they are spread; of conversations the tokens that are asked for."""
    import numpy as np

    if store.form == "turns":
        return {"tokens_asked_for": store.n_asked}
    there = np.asarray(store.labels)
    there = there[~np.isnan(there)].astype(float)
    if labels.names:
        return dict(zip(labels.names, np.bincount(there.astype(int), minlength=len(labels.names)).tolist(), strict=True))
    numbers = there * labels.scale + labels.mean
    return {name: float(f"{getattr(numbers, name)():.6g}") for name in ("mean", "std", "min", "max")}


def _columns(measured: dict[str, dict[str, float]]) -> list[str]:
    """A table with a column for each of these texts."""
    names = list(next(iter(measured.values())))
    width = max(map(len, names))
    lines = [f"{'':{width}}" + "".join(f" {head:>12}" for head in measured)]
    return lines + [f"{name:{width}}" + "".join(f" {_number(numbers[name]):>12}" for numbers in measured.values()) for name in names]


def _measure(store: "TokenStore") -> dict[str, float]:
    import numpy as np

    lengths = store.lengths
    used = np.bincount(store.ids, minlength=store.vocabulary.size) > 0
    unknown = 0 if store.vocabulary.unk is None else int((store.ids == store.vocabulary.unk).sum())
    return {
        "documents": store.n_documents,
        "tokens": len(store),
        "bytes": store.raw_bytes,
        "tokens_per_byte": len(store) / store.raw_bytes,
        "different_tokens": int(used.sum()),
        "unknown_tokens": unknown,
        "shortest_document": int(lengths.min()),
        "median_document": float(np.median(lengths)),
        "95_percent_up_to": float(np.quantile(lengths, 0.95)),
        "longest_document": int(lengths.max()),
    }


def _documents(store: "TokenStore") -> set[bytes]:
    """The documents of one side, each as a hash of its ids."""
    import hashlib

    return {hashlib.blake2b(store.document(n).tobytes(), digest_size=16).digest() for n in range(store.n_documents)}


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
