"""Which documents are learnt from and which are held out: the same on every machine, and never one document on both sides.

A document's side is decided by a hash of its text alone, so a corpus that grows keeps its split. A document longer than
formats.PART is known by its first part.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mini_tf.data.formats.documents import Document
from mini_tf.recipe.data import Split
from mini_tf.system.errors import DataFault

Side = Literal["train", "val"]
Documents = Callable[[], Iterator[Document]]
"""Makes the documents anew, as often as it is called: they are never held all at once."""
FEW = 10
"""Documents. A text of fewer is split at its tail."""


@dataclass(frozen=True)
class Division:
    """Every document with its side, as often as asked; `characters` of both sides together; `notes` for people."""

    read: Callable[[], Iterator[tuple[Side, Document]]]
    characters: int
    notes: tuple[str, ...] = ()


def divide(documents: Documents, split: Split) -> Division:
    """Hold out a part of `documents`: by hash, or the tail where `split` says so or there are too few to choose from."""
    hashes, characters = _scan(documents())
    if not characters:
        raise DataFault("data.train: there is no text in it")
    # int() of the product as nanoGPT writes it, so that its split comes out to the character.
    cut = int(characters * (1 - split.share))
    if split.tail:
        return Division(lambda: _at_tail(documents(), cut), characters)
    n_documents, distinct = len(hashes), np.unique(hashes)
    if n_documents < FEW or len(distinct) < 2:
        return _divide_few(documents, split, n_documents - len(distinct))
    # At least the smallest hash is held out and at least the largest is not.
    threshold = min(max(int(split.share * 2**64), int(distinct[0]) + 1), int(distinct[-1]))
    return Division(lambda: _by_hash(documents(), threshold), characters)


def keep_apart(train: Documents, val: Documents) -> Division:
    """Two texts that were given: nothing is held out, but what stands in `train` too is left out of `val`."""
    train_hashes, n_train = _scan(train())
    val_hashes, n_val = _scan(val())
    for key, n in (("data.train", n_train), ("data.val", n_val)):
        if not n:
            raise DataFault(f"{key}: there is no text in it")
    known = np.unique(train_hashes)
    shared = int(np.isin(val_hashes, known).sum())
    if shared == len(val_hashes):
        raise DataFault(
            f"data.val: all of its {shared} documents also stand in data.train", hint="leave data.val out: a part is then held out"
        )
    known_set = frozenset(known[np.isin(known, val_hashes)].tolist())

    def read() -> Iterator[tuple[Side, Document]]:
        for document in train():
            yield "train", document
        for document in _without(val(), known_set):
            yield "val", document

    notes = (f"{shared} of {len(val_hashes)} documents of data.val also stand in data.train; they were left out of it",) if shared else ()
    return Division(read, n_train + n_val, notes)


def side_by_side(train: Documents, val: Documents) -> Division:
    """Two raw streams as they are."""
    characters = 0
    for key, documents in (("data.train", train), ("data.val", val)):
        if not (n := sum(len(d.text) for d in documents())):
            raise DataFault(f"{key}: there is no text in it")
        characters += n

    def read() -> Iterator[tuple[Side, Document]]:
        yield from (("train", document) for document in train())
        yield from (("val", document) for document in val())

    return Division(read, characters)


def hash_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _scan(documents: Iterable[Document]) -> tuple[np.ndarray, int]:
    """The hash of every document (uint64), and the number of characters of all."""
    hashes, characters = array("Q"), 0  # eight bytes a document, however many there are
    for document in documents:
        characters += len(document.text)
        if document.opens:
            hashes.append(hash_text(document.text))
    return np.array(hashes, np.uint64), characters


def _by_hash(documents: Iterable[Document], threshold: int) -> Iterator[tuple[Side, Document]]:
    side: Side = "train"
    for document in documents:
        if document.opens:
            side = "val" if hash_text(document.text) < threshold else "train"
        yield side, document


def _divide_few(documents: Documents, split: Split, n_repeats: int) -> Division:
    """The tail of few documents; what is repeated counts once, since its end could stand on the other side."""

    def once() -> Iterator[Document]:
        seen: set[int] = set()
        fresh = True
        for document in documents():
            if document.opens:
                fresh = (one := hash_text(document.text)) not in seen
                seen.add(one)
            if fresh:
                yield document

    characters = sum(len(document.text) for document in once())
    cut = int(characters * (1 - split.share))
    notes = [f"fewer than {FEW} different documents: the last {split.share:.4g} of the characters is held out"]
    if n_repeats:
        notes.append(f"{n_repeats} repeated documents were left out")
    return Division(lambda: _at_tail(once(), cut), characters, tuple(notes))


def _without(documents: Iterable[Document], known: frozenset[int]) -> Iterator[Document]:
    leave = False
    for document in documents:
        if document.opens:
            leave = hash_text(document.text) in known
        if not leave:
            yield document


def _at_tail(documents: Iterable[Document], cut: int) -> Iterator[tuple[Side, Document]]:
    """The first `cut` characters, then the rest, which opens anew."""
    seen = 0
    for document in documents:
        text, where = document.text, document.where
        here = cut - seen
        if here >= len(text):
            yield "train", document
        elif here > 0:
            yield "train", Document(text[:here], where, document.opens)
            yield "val", Document(text[here:], where)
        else:
            yield "val", Document(text, where, document.opens or here == 0)
        seen += len(text)
