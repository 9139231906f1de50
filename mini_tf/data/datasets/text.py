"""Text: documents one after another, of which rows are windows, or one document each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mini_tf.data import describing
from mini_tf.data.batch import Batch, Rows
from mini_tf.data.datasets import TEXTS, Dataset, Reader, TokenizedData
from mini_tf.data.formats.data_files import DataFile, find_files
from mini_tf.data.formats.documents import Document, read_raw, try_documents
from mini_tf.data.labels import Labels
from mini_tf.data.packing import Packing, Shape
from mini_tf.data.split import FEW, Division, Read, Side, hash_text, hold_out_by_hash
from mini_tf.data.store import Encoded, Store, Tokenizers
from mini_tf.data.windows import Windows
from mini_tf.recipe.data import Data, Split
from mini_tf.system.errors import DataFault


class Settings(Dataset):
    REQUIRED = ("text",)
    LIKELY = {"text": TEXTS}
    COLUMNS_HINT = "a language model reads one column: {text: COLUMN}"
    UNIT = "documents"
    STREAM = True
    ROW = "pack {pack}"
    CUTS = None
    KEEPS_EXAMPLES = False

    def find(self, corpus: object, key: str) -> list[DataFile]:
        return find_files(corpus, key)

    def reader(self, data: Data, corpus: object = None, labelled: bool = True, labels: Labels | None = None) -> Reader:
        # The only column of a file is its text, whatever it is called.
        columns = replace(self.columns(data, data.fields, self.REQUIRED), names=(data.fields.get("text"),))
        return Reader(self, self.REQUIRED, columns)

    def parts(self, files: Sequence[DataFile], data: Data, corpus: object, labels: Labels | None = None) -> Iterator[Iterator[Any]]:
        columns = self.reader(data).columns
        # A raw stream is one text, whatever files it comes from.
        return iter([read_raw(files, columns)]) if data.split.tail else (try_documents(file, columns) for file in files)

    def opens(self, example: Document) -> bool:
        return example.opens

    def size(self, example: Document) -> int:
        return len(example.text)

    def texts(self, example: Document, source: bool = False) -> Sequence[str]:
        return (example.text,)

    def whole(self, example: Document) -> str:
        return example.text

    def separated(self, data: Data) -> bool:
        return not data.split.tail

    def divide(self, train: Read, val: Read | None, split: Split) -> Division:
        if val is not None:
            return _side_by_side(train, val) if split.tail else super().divide(train, val, split)
        known = self.known(whole=False)
        hashes, characters = known.scan(train())
        if not characters:
            raise DataFault("data.train: there is no text in it")
        distinct = np.unique(hashes)
        if split.tail:
            return _tail(train, characters, split)
        if len(hashes) < FEW or len(distinct) < 2:
            return _tail_of_few(train, split, len(hashes) - len(distinct))
        return hold_out_by_hash(train, known, split.share, distinct, characters)

    def encode(self, examples: Sequence[Document], used: Tokenizers, labels: Labels | None) -> list[Encoded]:
        return [Encoded(ids) for ids in used.target.encode_batch([document.text for document in examples])]

    def packing(self, store: Store, shape: Shape) -> Packing:
        return Windows(store, shape)

    def opened(self, text: TokenizedData) -> str:
        return ", ".join(f"{side} {len(store):,} tokens in {store.n_documents:,} documents" for side, store in text.sides.items())

    def summary(self, text: TokenizedData) -> Iterator[str]:
        yield f"data: {len(text.train):,} training tokens, {len(text.val):,} validation tokens"

    def stats(self, text: TokenizedData, packings: Mapping[str, Packing]) -> tuple[list[str], dict[str, Any]]:
        sides = {side: describing.measure(store) for side, store in text.sides.items()}
        shared, size = describing.on_both_sides(text.train, text.val), text.tokenizer.vocabulary.size
        lines = [*describing.columns(sides), f"vocabulary: {size:,} tokens", f"documents on both sides: {shared}"]
        return lines, {**sides, "vocabulary": size, "documents_on_both_sides": shared}

    def shown(self, text: TokenizedData, rows: Rows, batch: Batch, row: int, training: bool) -> dict[str, Any]:
        length = batch.inputs.ids.shape[1]
        documents = np.ones(length, int) if rows.segments is None else rows.segments[row, :length]
        return describing.predicted(text.tokenizer, rows, batch, row, documents)

    def table(self, row: Mapping[str, Any], head: str) -> list[str]:
        return [f"{head}: {describing.size_of(row)}", *describing.token_table(row)]


def _tail(documents: Read, characters: int, split: Split, *notes: str) -> Division:
    """The last characters, wherever they begin."""
    # int() of the product as nanoGPT writes it, so that its split comes out to the character.
    cut = int(characters * (1 - split.share))
    return Division(lambda: _at_tail(documents(), cut), characters, notes)


def _tail_of_few(documents: Read, split: Split, n_repeats: int) -> Division:
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

    few = f"fewer than {FEW} different documents: the last {split.share:.4g} of the characters is held out"
    repeats = [f"{n_repeats} repeated documents were left out"] if n_repeats else []
    return _tail(once, sum(len(document.text) for document in once()), split, few, *repeats)


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


def _side_by_side(train: Read, val: Read) -> Division:
    """Two raw streams as they are."""
    sizes = {key: sum(len(document.text) for document in side()) for key, side in (("data.train", train), ("data.val", val))}
    for key, n in sizes.items():
        if not n:
            raise DataFault(f"{key}: there is no text in it")

    def read() -> Iterator[tuple[Side, Document]]:
        yield from (("train", document) for document in train())
        yield from (("val", document) for document in val())

    return Division(read, sum(sizes.values()))
