"""Stores and rows in words and figures: what `data stats` and `data show` print of any dataset."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.store import Store
from mini_tf.data.tokenization.tokenizer import Tokenizer


def lengths(store: Store) -> str:
    """How long documents are, in a sentence."""
    half, most, longest = np.quantile(store.lengths, [0.5, 0.95, 1.0]).astype(int).tolist()
    return f"half have at most {half} tokens, 95 % at most {most}, the longest {longest}"


def measure(store: Store) -> dict[str, float]:
    """Figures of a store, by name."""
    unk = store.vocabulary.unk
    return {
        "documents": store.n_documents,
        "tokens": len(store),
        "bytes": store.raw_bytes,
        "tokens_per_byte": len(store) / store.raw_bytes,
        "different_tokens": int((np.bincount(store.ids, minlength=store.vocabulary.size) > 0).sum()),
        "unknown_tokens": 0 if unk is None else int((store.ids == unk).sum()),
        "shortest_document": int(store.lengths.min()),
        "median_document": float(np.median(store.lengths)),
        "95_percent_up_to": float(np.quantile(store.lengths, 0.95)),
        "longest_document": int(store.lengths.max()),
    }


def on_both_sides(train: Store, val: Store) -> int:
    """Documents that stand in both stores with the same ids."""
    sides = ({hashlib.blake2b(one.document(n).tobytes(), digest_size=16).digest() for n in range(one.n_documents)} for one in (train, val))
    return len(set.intersection(*sides))


def columns(measured: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A table with a column for each mapping of the same names."""
    names = list(next(iter(measured.values())))
    width = max(map(len, names))
    lines = [f"{'':{width}}" + "".join(f" {head:>12}" for head in measured)]
    return lines + [f"{name:{width}}" + "".join(f" {_number(numbers[name]):>12}" for numbers in measured.values()) for name in names]


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def read_of(tokenizer: Tokenizer, read: np.ndarray) -> list[dict[str, Any]]:
    """What is read at each place."""
    return [{"place": place, "id": int(id), "reads": tokenizer.pieces([id])[0]} for place, id in enumerate(read)]


def predicted(tokenizer: Tokenizer, rows: Rows, batch: Batch, row: int, documents: np.ndarray) -> dict[str, Any]:
    """One row of which tokens are predicted. documents: which of the row's documents each place belongs to, 0 = padding."""
    inputs = batch.inputs.ids.numpy()
    asked, length = np.full(inputs.size, -1), inputs.shape[1]
    asked[np.arange(inputs.size) if batch.target_positions is None else batch.target_positions.numpy()] = batch.labels.numpy()
    targets = asked.reshape(inputs.shape)[row]
    places = [
        {"place": one["place"], "document": int(document), **one}
        | {"target": tokenizer.pieces([target])[0] if target >= 0 else None, "replaced": replaced}
        for one, document, target, replaced in zip(
            read_of(tokenizer, inputs[row]), documents, targets, hidden(tokenizer, inputs[row], rows.ids[row, :length]), strict=True
        )
        if document
    ]
    return {"padding": length - len(places), "places": places}


def between_separators(tokenizer: Tokenizer, rows: Rows, batch: Batch, row: int) -> dict[str, Any]:
    """`predicted` of a row that is one example: its closing separator is predicted, but not read."""
    documents = np.ones(rows.ids.shape[1] - 1, int) if rows.segments is None else rows.segments[row, 1:]
    return predicted(tokenizer, rows, batch, row, documents)


def hidden(tokenizer: Tokenizer, read: np.ndarray, original: np.ndarray) -> list[str | None]:
    """What stood at each place where something else is read."""
    return [tokenizer.pieces([there])[0] if id != there else None for id, there in zip(read, original, strict=True)]


def without_padding(rows: Rows, row: int) -> np.ndarray:
    """The ids of one row."""
    ids: np.ndarray = rows.ids[row] if rows.segments is None else rows.ids[row][rows.segments[row] != 0]
    return ids


def size_of(row: Mapping[str, Any]) -> str:
    """How long a row is, in words."""
    return f"{len(row['places'])} tokens" + (f" and {row['padding']} of padding" if row["padding"] else "")


def table(lines: Iterable[tuple[str, Sequence[Any]]]) -> list[str]:
    """Lines of a number on the left and cells of 20 columns; the first is the head, in the others cells are quoted, and empty if None."""
    head, *rows = lines
    quoted = [(left, ["" if cell is None else repr(cell) for cell in cells]) for left, cells in rows]
    return [f"{left}  {' '.join(f'{cell:<20}' for cell in cells)}".rstrip() for left, cells in [head, *quoted]]


def token_table(row: Mapping[str, Any]) -> list[str]:
    """A row of which tokens are predicted, a line a place."""
    head = (f"{'place':>7} {'document':>8}", ("reads", "is asked for", "original"))
    places = ((f"{one['place']:>7} {one['document']:>8}", (one["reads"], one["target"], one["replaced"])) for one in row["places"])
    return table([head, *places])
