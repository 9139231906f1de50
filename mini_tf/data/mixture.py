"""The rows of a data mixture: those of each source, one after the other, of which the training plan draws by share."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from mini_tf.data.batch import Rows, join_rows
from mini_tf.data.packing import EvalBatch, Packing, example_keys
from mini_tf.data.split import DataSplit, ExampleHasher, Examples, Part, SplitName, hash_text
from mini_tf.recipe.corpora import DataSource
from mini_tf.system.errors import DataFault, RecipeFault

ROUNDING_ROWS = 2
"""Rows of a source, by which the number of rows of a run may miss its `epochs`, and those of a step."""


Take = Callable[[int, np.ndarray, np.ndarray], Rows]
"""(source, its rows, where they stand among all) -> the rows."""


@dataclass(frozen=True, eq=False)
class Mixture(Packing):
    """parts: the rows of each source. settings: of each source, in data.train; empty for validation data."""

    parts: Sequence[Packing]
    settings: Sequence[DataSource] = ()

    @property
    def names(self) -> list[str]:  # type: ignore[override]
        return [source.name for source in self.store.sources]

    @cached_property
    def firsts(self) -> np.ndarray:
        """(sources + 1,): the number of the first row of each source, then the number of rows."""
        return np.cumsum([0, *(part.n_rows for part in self.parts)])

    @cached_property
    def _eval_firsts(self) -> np.ndarray:
        return np.cumsum([0, *(len(part.eval_row_tokens) for part in self.parts)])

    @property
    def n_rows(self) -> int:
        return int(self.firsts[-1])

    @property
    def lengths(self) -> np.ndarray:
        return np.concatenate([part.lengths for part in self.parts])

    @property
    def row_tokens(self) -> float:
        return float(np.average([part.row_tokens for part in self.parts], weights=np.diff(self.firsts)))

    @property
    def eval_row_tokens(self) -> np.ndarray:
        return np.concatenate([part.eval_row_tokens for part in self.parts])

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        self.store.check()
        return self._joined(rows, self.firsts, lambda part, index, at: self.parts[part].take(index, epoch, keys[at]))

    def take_eval(self, rows: np.ndarray, keys: np.ndarray) -> Rows:
        self.store.check()
        parts = self.parts
        return self._joined(rows, self._eval_firsts, lambda n, index, at: parts[n].take_eval(index, keys[at]))

    def _joined(self, rows: np.ndarray, firsts: np.ndarray, take: Take) -> Rows:
        """The rows of all sources in their order. take: those of one source."""
        of_part = np.searchsorted(firsts, rows, side="right") - 1
        places = [np.flatnonzero(of_part == part) for part in range(len(self.parts))]
        taken = [take(part, rows[at] - firsts[part], at) for part, at in enumerate(places) if len(at)]
        return taken[0] if len(taken) == 1 else join_rows(taken).select(np.argsort(np.concatenate(places)))

    def documents(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        before, documents = 0, list[np.ndarray]()
        for part, first, last in zip(self.parts, self.firsts, self.firsts[1:], strict=False):
            own_rows = rows[(rows >= first) & (rows < last)] - first
            documents += [part.documents(own_rows, epoch) + before] if len(own_rows) else []
            before += part.store.n_documents
        return np.concatenate(documents) if documents else np.empty(0, np.int64)

    def bytes_of(self, targets: float) -> float:
        usable = sum(len(part.store) - self.shape.lookahead for part in self.parts)
        return self.store.raw_bytes * (targets / max(1, usable))

    def eval_batches(self, batch_size: int, tokens: int | None = None) -> Iterator[EvalBatch]:
        """Batches of one source each."""
        indices = self.eval_row_indices(tokens)
        of_part = np.searchsorted(self._eval_firsts, indices, side="right") - 1
        for number, name in enumerate(self.names):
            of_source = indices[of_part == number]
            for begin in range(0, len(of_source), batch_size):
                batch = of_source[begin : begin + batch_size]
                yield EvalBatch(self.take_eval(batch, example_keys(batch)), source=name)

    def bytes_of_source(self, name: str, targets: float) -> float:
        """`bytes_of` the targets of a source."""
        return self.parts[self.names.index(name)].bytes_of(targets)

    def shares(self, n_rows: int | None, batch_size: int) -> np.ndarray:
        """(sources,): share of each source in the rows of a run of `n_rows` rows; None: a number that is not known.

        A source with `epochs` has so many times its rows, and the others divide the rest by weight. RecipeFault if
        there is no rest, or too much of it.
        """
        sizes = np.diff(self.firsts).astype(float)
        epochs = np.array([source.epochs or 0.0 for source in self.settings])
        weighted = epochs == 0
        has_weights = any(source.weight is not None for source in self.settings)
        weights = np.array([source.weight or 1.0 for source in self.settings]) if has_weights else sizes
        needed, slack = float((epochs * sizes).sum()), batch_size + ROUNDING_ROWS * len(sizes)
        total = needed if n_rows is None else float(n_rows)
        if needed > total + (0 if weighted.any() else slack) or (weighted.any() and total <= needed > 0):
            raise _other_length(needed, total, batch_size, "fewer")
        if not weighted.any():
            if needed < total - slack:
                raise _other_length(needed, total, batch_size, "more")
            return np.asarray(epochs * sizes / needed)
        shares: np.ndarray = epochs * sizes / max(total, 1.0)
        shares[weighted] = (1 - shares.sum()) * weights[weighted] / weights[weighted].sum()
        return shares


def _other_length(needed: float, total: float, batch_size: int, which: str) -> RecipeFault:
    steps = -(-int(needed) // batch_size)
    message = f"data.train: the epochs of its sources are {needed:,.0f} rows, and the run has {which}: {total:,.0f}"
    more = "; or give a source a weight instead" if which == "more" else " or more, or fewer epochs"
    return RecipeFault(message, hint=f"use train.steps={steps}{more}")


def mixture_of(store_packings: Sequence[Packing], whole: Packing, settings: Sequence[DataSource]) -> Mixture:
    """DataFault if a source of the training data has no row."""
    for source, part in zip(whole.store.sources, store_packings, strict=True):
        if len(part.store) <= part.shape.lookahead + part.store.separated:
            raise DataFault(f"the source {source.name} has no text", hint="remove it, or add text")
    return Mixture(whole.store, whole.shape, store_packings, settings)


SplitOf = Callable[[Examples, Examples | None], DataSplit]
"""The split of the examples of one source."""


def split_sources(
    split_of: SplitOf,
    hasher: ExampleHasher,
    train: Sequence[Examples],
    val: Sequence[Examples] | None,
    names: Sequence[str],
    in_folds: bool = False,
) -> DataSplit:
    """The split of the sources of a mixture, with the number of each; without `val` each is split by itself.

    A training example that another source holds out is removed, with a note; DataFault if a source has no other ones.
    names: of the sources, if there are several. in_folds: all are split as one, since the folds of each would separate
    a document that stands in two sources from itself.
    """
    if val is not None or in_folds:
        return split_of(_numbered(train), None if val is None else _numbered(val))
    splits = [split_of(of_source, None) for of_source in train]
    if len(splits) == 1:
        return splits[0]
    hashes = [split.hashes() for split in splits if split.hashes is not None]
    held_out = [of_val for _, of_val in hashes]
    splits = [
        _apart(split, of_train, np.concatenate([*held_out[:n], *held_out[n + 1 :]]), hasher, name)
        for n, (split, (of_train, _), name) in enumerate(zip(splits, hashes, names, strict=True))
    ]
    parts = [replace(part, source=n) for n, of_source in enumerate(splits) for part in of_source.parts]
    notes = (f"{name}: {note}" for name, of_source in zip(names, splits, strict=True) for note in of_source.notes)
    return DataSplit(parts, sum(of_source.characters for of_source in splits), tuple(notes))


def _numbered(sources: Sequence[Examples]) -> Examples:
    """The examples of all sources, with the number of each."""
    parts = [replace(part, source=n) for n, examples in enumerate(sources) for part in examples.parts]
    return replace(sources[0], parts=parts)


def _apart(split: DataSplit, trained: np.ndarray, held_out: np.ndarray, hasher: ExampleHasher, name: str) -> DataSplit:
    """The split of a source, with training examples of the hashes `trained`, without those that others hold out."""
    shared = np.intersect1d(trained, held_out)
    if not len(shared):
        return split
    overlap = f"{len(shared)} of {len(trained)} different training {hasher.unit} are also in the validation data"
    if len(shared) == len(trained):
        raise DataFault(
            f"data.train: {name}: {overlap} of other sources", hint="give data.val, or leave the source out"
        )
    removed = frozenset(shared.tolist())
    parts = [replace(part, read=partial(_without, part, removed, hasher)) for part in split.parts]
    return replace(split, parts=parts, notes=(*split.notes, f"{overlap} of other sources; they were removed"))


def _without(
    part: Part[tuple[SplitName, Any]], removed: frozenset[int], hasher: ExampleHasher
) -> Iterator[tuple[SplitName, Any]]:
    is_removed = False
    for split, example in part.read():
        if hasher.is_first_part(example):
            is_removed = split == "train" and hash_text(hasher.key(example)) in removed
        if not is_removed:
            yield split, example
