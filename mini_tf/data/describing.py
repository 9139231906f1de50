"""Stores and rows as text and numbers, for `data stats` and `data show` of any dataset."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.store import Store
from mini_tf.data.tokenization.tokenizer import Tokenizer


def lengths(store: Store) -> str:
    """Distribution of lengths, in a sentence."""
    half, most, longest = np.quantile(store.lengths, [0.5, 0.95, 1.0]).astype(int).tolist()
    return f"median {half} tokens, 95th percentile {most}, maximum {longest}"


def measure(store: Store) -> dict[str, float]:
    """Numbers about a store, by name."""
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
    """Documents in both stores with the same ids."""
    sides = ({hashlib.blake2b(one.document(n).tobytes(), digest_size=16).digest() for n in range(one.n_documents)} for one in (train, val))
    return len(set.intersection(*sides))


def columns(measured: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A table with one column per mapping."""
    names = list(next(iter(measured.values())))
    width = max(map(len, names))
    lines = [f"{'':{width}}" + "".join(f" {head:>12}" for head in measured)]
    return lines + [f"{name:{width}}" + "".join(f" {_number(numbers[name]):>12}" for numbers in measured.values()) for name in names]


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def read_of(tokenizer: Tokenizer, read: np.ndarray) -> list[dict[str, Any]]:
    """The token at each position."""
    return [{"position": position, "id": int(id), "reads": tokenizer.pieces([id])[0]} for position, id in enumerate(read)]


def predicted(tokenizer: Tokenizer, rows: Rows, batch: Batch, row: int, documents: np.ndarray) -> dict[str, Any]:
    """One row of token predictions. documents: the document of each position, 0 = padding."""
    inputs = batch.inputs.ids.numpy()
    asked, length = np.full(inputs.size, -1), inputs.shape[1]
    asked[np.arange(inputs.size) if batch.at is None else batch.at.numpy()] = batch.labels.numpy()
    targets = asked.reshape(inputs.shape)[row]
    positions = [
        {"position": one["position"], "document": int(document), **one}
        | {"target": tokenizer.pieces([target])[0] if target >= 0 else None, "replaced": replaced}
        for one, document, target, replaced in zip(
            read_of(tokenizer, inputs[row]), documents, targets, hidden(tokenizer, inputs[row], rows.ids[row, :length]), strict=True
        )
        if document
    ]
    return {"padding": length - len(positions), "positions": positions}


def between_separators(tokenizer: Tokenizer, rows: Rows, batch: Batch, row: int) -> dict[str, Any]:
    """`predicted` for a row that is one example: its closing separator is a target, but no input."""
    documents = np.ones(rows.ids.shape[1] - 1, int) if rows.segments is None else rows.segments[row, 1:]
    return predicted(tokenizer, rows, batch, row, documents)


def hidden(tokenizer: Tokenizer, read: np.ndarray, original: np.ndarray) -> list[str | None]:
    """The original token at each position where it was replaced."""
    return [tokenizer.pieces([there])[0] if id != there else None for id, there in zip(read, original, strict=True)]


def without_padding(rows: Rows, row: int) -> np.ndarray:
    """The ids of one row, without padding."""
    ids: np.ndarray = rows.ids[row] if rows.segments is None else rows.ids[row][rows.segments[row] != 0]
    return ids


def size_of(row: Mapping[str, Any]) -> str:
    """The length of a row, in words."""
    return f"{len(row['positions'])} tokens" + (f" and {row['padding']} of padding" if row["padding"] else "")


def table(lines: Iterable[tuple[str, Sequence[Any]]]) -> list[str]:
    """Lines of a number and cells of 20 columns; the first line is the head, other cells are quoted, None is empty."""
    head, *rows = lines
    quoted = [(left, ["" if cell is None else repr(cell) for cell in cells]) for left, cells in rows]
    return [f"{left}  {' '.join(f'{cell:<20}' for cell in cells)}".rstrip() for left, cells in [head, *quoted]]


def token_table(row: Mapping[str, Any]) -> list[str]:
    """A row of token predictions, one line per position."""
    head = (f"{'position':>8} {'document':>8}", ("input", "target", "original"))
    positions = ((f"{one['position']:>8} {one['document']:>8}", (one["reads"], one["target"], one["replaced"])) for one in row["positions"])
    return table([head, *positions])
