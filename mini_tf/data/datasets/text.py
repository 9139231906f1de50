"""Text for language modeling: documents, read as windows on the stream of all, or one per row."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mini_tf.data import describing
from mini_tf.data.batch import Batch, Rows
from mini_tf.data.datasets import TEXT_COLUMNS, Dataset, Reader, TokenizedData
from mini_tf.data.examples import Labels
from mini_tf.data.formats.data_files import DataFile, find_files
from mini_tf.data.formats.text_documents import MARK, Document, read_raw, try_documents
from mini_tf.data.packing import Packing, Shape
from mini_tf.data.split import (
    MIN_EXAMPLES,
    DataSplit,
    Examples,
    SplitName,
    as_split,
    hash_text,
    hold_out_by_hash,
)
from mini_tf.data.store import Encoded, Store, Tokenizers
from mini_tf.data.windows import StreamedRows, Windows
from mini_tf.recipe.data import Data, Split
from mini_tf.system.numbers import counted


class Settings(Dataset):
    REQUIRED = ("text",)
    COMMON_NAMES = {"text": TEXT_COLUMNS}
    COLUMNS_HINT = "needed: {text: COLUMN}"
    UNIT = "documents"
    STREAM = True
    ROW = "pack {pack}"
    TRUNCATES = None
    KEEPS_EXAMPLES = False

    def find(self, corpus: object, key: str) -> list[DataFile]:
        return find_files(corpus, key)

    def reader(self, data: Data, corpus: object = None, labelled: bool = True, labels: Labels | None = None) -> Reader:
        # If a file has one column, that is the text, whatever its name.
        columns = replace(self.columns(data, data.fields, self.REQUIRED), names=(data.fields.get("text"),))
        return Reader(self, self.REQUIRED, columns)

    def groups(self, files: Sequence[DataFile], data: Data, corpus: object) -> list[Sequence[DataFile]]:
        # A raw stream is one text, whatever the files.
        return [files] if data.split.tail else super().groups(files, data, corpus)

    def try_read(
        self, group: Sequence[DataFile], data: Data, corpus: object, labels: Labels | None = None
    ) -> Iterator[Any]:
        columns = self.reader(data).columns
        return read_raw(group, columns) if data.split.tail else try_documents(group[0], columns)

    def is_first_part(self, example: Document) -> bool:
        return example.opens

    def size(self, example: Document) -> int:
        return len(example.text)

    def texts(self, example: Document, source: bool = False) -> Sequence[str]:
        return (example.text,)

    def dropped(self, examples: Sequence[Document]) -> dict[str, int]:
        meaning = "where it is text and separates nothing; in txt files it needs a line of its own"
        return {f"{MARK} is {{n:,}} times within a text, {meaning}": sum(doc.text.count(MARK) for doc in examples)}

    def split_key(self, example: Document) -> str:
        return example.text if example.uncut is None else example.uncut

    def content_key(self, example: Document) -> str:
        return example.text

    def separated(self, data: Data) -> bool:
        return not data.split.tail

    def split(self, train: Examples, val: Examples | None, split: Split) -> DataSplit:
        if val is not None:
            if split.tail:  # two raw streams, unchanged
                characters = sum(self.hasher(content=True).scan_together(examples)[1] for examples in (train, val))
                return DataSplit([*as_split(train, "train"), *as_split(val, "val")], characters)
            return super().split(train, val, split)
        if split.folds is not None:
            return super().split(train, None, split)
        hasher = self.hasher(content=False)
        hashes, characters = hasher.scan_together(train)
        distinct = np.unique(hashes)
        if split.tail:
            return _hold_out_tail(train.read, characters, split)
        if len(hashes) < MIN_EXAMPLES or len(distinct) < 2:
            return _hold_out_tail_of_few(train, split, len(hashes) - len(distinct))
        return hold_out_by_hash(train, hasher, split.share, distinct, characters)

    def encode(self, examples: Sequence[Document], tokenizers: Tokenizers, labels: Labels | None) -> list[Encoded]:
        return [Encoded(ids) for ids in tokenizers.target.encode_batch([document.text for document in examples])]

    def packing(self, store: Store, shape: Shape) -> Packing:
        return Windows(store, shape) if store.streamed is None else StreamedRows(store, shape)

    def size_summary(self, data: TokenizedData) -> str:
        stores = data.splits.items()
        sizes = (f"{split} {len(store):,} tokens in {store.n_documents:,} documents" for split, store in stores)
        return ", ".join([*sizes, *_streamed(data.train)])

    def summary(self, data: TokenizedData) -> Iterator[str]:
        if data.train.streamed is None:
            yield f"data: {len(data.train):,} training tokens, {len(data.val):,} validation tokens"
        yield from (f"data: {line}, {len(data.val):,} validation tokens" for line in _streamed(data.train))

    def stats(self, data: TokenizedData, packings: Mapping[str, Packing]) -> tuple[list[str], dict[str, Any]]:
        splits = {split: describing.store_statistics(store) for split, store in data.splits.items()}
        shared, size = describing.n_shared_documents(data.train, data.val), data.tokenizer.vocabulary.size
        lines = [
            *describing.format_statistics(splits),
            f"vocabulary: {size:,} tokens",
            f"documents in both splits: {shared}",
        ]
        result = {**splits, "vocabulary": size, "documents_on_both_sides": shared}
        if (streamed := data.train.streamed) is not None:
            lines += [f"train is a sample of {line}" for line in _streamed(data.train)]
            shards = streamed.shards
            result["streamed"] = {"files": len(shards.shards), "bytes": shards.length, "tokens": streamed.n_tokens}
        return lines, result

    def describe_row(self, data: TokenizedData, rows: Rows, batch: Batch, row: int, training: bool) -> dict[str, Any]:
        if batch.source is not None:
            return describing.describe_row_with_source(data.tokenizer, batch, row)
        length = batch.inputs.ids.shape[1]
        documents = np.ones(length, int) if rows.segments is None else rows.segments[row, :length]
        return describing.describe_token_row(data.tokenizer, rows, batch, row, documents)

    def row_table(self, row: Mapping[str, Any], head: str) -> list[str]:
        return (describing.source_and_target_table if "source" in row else describing.token_table)(row, head)


def _streamed(store: Store) -> list[str]:
    """The size of a corpus that is streamed; empty for one that is not."""
    if (text := store.streamed) is None:
        return []
    n, size = len(text.shards.shards), f"{text.shards.length / 1e6:,.1f} MB"
    return [f"{counted(n, 'file')} of {size}, about {text.n_tokens:,} training tokens (streamed)"]


def _hold_out_tail(read: Callable[[], Iterator[Document]], characters: int, split: Split, *notes: str) -> DataSplit:
    """Hold out the last characters, even if that cuts a document."""
    # nanoGPT's formula, so that its split is reproduced exactly.
    cut = int(characters * (1 - split.share))
    return DataSplit.in_one_part(lambda: _cut(read(), cut), characters, notes)


def _hold_out_tail_of_few(examples: Examples, split: Split, n_repeats: int) -> DataSplit:
    """Hold out the tail of few documents. Repeated documents are removed: one could be in both splits."""

    def once() -> Iterator[Document]:
        seen: set[int] = set()
        fresh = True
        for document in examples.read():
            if document.opens:
                fresh = (hash_ := hash_text(document.text)) not in seen
                seen.add(hash_)
            if fresh:
                yield document

    last = f"the last {100 * split.share:.4g}% of the characters are the validation data"
    few = f"fewer than {MIN_EXAMPLES} different documents: {last}"
    repeats = [f"{n_repeats} repeated documents were removed"] if n_repeats else []
    tail = _hold_out_tail(once, sum(len(document.text) for document in once()), split, few, *repeats)
    return replace(tail, hashes=lambda: _hashes(tail.read(), once()))


def _hashes(
    parts: Iterator[tuple[SplitName, Document]], documents: Iterator[Document]
) -> tuple[np.ndarray, np.ndarray]:
    """`DataSplit.hashes` of a split that cuts no document, or one, in two."""
    n_train = sum(len(document.text) for split, document in parts if split == "train")
    of_train, of_val, seen = list[int](), list[int](), 0
    for document in documents:
        if document.opens:
            hash_ = hash_text(document.text)
        of_train += [hash_] if seen < n_train else []
        seen += len(document.text)
        of_val += [hash_] if seen > n_train else []
    train, val = (np.unique(np.array(hashes, np.uint64)) for hashes in (of_train, of_val))
    return train, val


def _cut(documents: Iterable[Document], cut: int) -> Iterator[tuple[SplitName, Document]]:
    """The first `cut` characters are training data, the rest, which begins a new document, validation data."""
    seen = 0
    for document in documents:
        text, where = document.text, document.where
        n_train = cut - seen
        if n_train >= len(text):
            yield "train", document
        elif n_train > 0:
            yield "train", Document(text[:n_train], where, document.opens, uncut=text)
            yield "val", Document(text[n_train:], where)
        else:
            yield "val", Document(text, where, document.opens or n_train == 0)
        seen += len(text)
