"""Pairs of a source and a target: two parallel files of lines, or the rows of a table.

An empty or missing source or target is refused with its file and line. The split is by a hash of the source alone, so
no source is in both splits. A pair longer than the context is truncated: a source between characters, and it keeps its
closing separator; the closing separator of a truncated target is not a target token.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mini_tf.data import describing
from mini_tf.data.batch import Batch, Rows
from mini_tf.data.datasets import Dataset, Reader, TokenizedData
from mini_tf.data.examples import Labels, Pair
from mini_tf.data.formats.columns import Cell, text_of, texts_of
from mini_tf.data.formats.data_files import DataFile, find_files
from mini_tf.data.formats.text_lines import read_lines
from mini_tf.data.packing import ExampleRows, Packing, Shape, Spans, source_start
from mini_tf.data.store import Encoded, Store, Tokenizers
from mini_tf.data.tokenization.vocabulary import between_characters, or_unknown
from mini_tf.recipe.data import Data, FilePair
from mini_tf.system.errors import DataFault

ALIGNMENT = "alignment"
"""The column of gold word alignments, in the Pharaoh format: `0-0 1-2`."""


class Settings(Dataset):
    REQUIRED = TOGETHER = ("source", "target")
    COMMON_NAMES = {
        "source": ("src", "input", "document", "article"),
        "target": ("tgt", "output", "summary", "translation", "reference"),
    }
    COLUMNS_HINT = "needed: {source: COLUMN, target: COLUMN}"
    UNIT = ROW = "pairs"
    FURTHER_TEXTS = frozenset({"input", "context"})
    SOURCE = True
    SPLIT_UNIT = "sources"

    def find(self, corpus: object, key: str) -> list[DataFile]:
        if not isinstance(corpus, FilePair):
            tables = find_files(corpus, key)
            for table in tables:
                if table.format in ("txt", "conll", "conllu"):
                    hint = "give two text files as {source: FILE, target: FILE}"
                    fault = f"{key}: {table.name} is not a table (jsonl, csv, tsv, parquet)"
                    raise DataFault(fault, hint=hint, where=(table.name,))
            return tables
        sources, targets = (find_files(getattr(corpus, role), f"{key}.{role}") for role in self.REQUIRED)
        for role, files in (("source", sources), ("target", targets)):
            for file in files:
                if file.format != "txt":
                    hint = "give one table, with data.fields={source: COLUMN, target: COLUMN}"
                    fault = f"{key}.{role}: {file.name} is {file.format}, not lines of text"
                    raise DataFault(fault, hint=hint, where=(file.name,))
        if len(sources) != len(targets):
            counts = f"{len(sources)} source files, but {len(targets)} target files"
            raise DataFault(f"{key}: {counts}; there must be one target file for each")
        return [file for pair in zip(sources, targets, strict=True) for file in pair]

    def reader(self, data: Data, corpus: object = None, labelled: bool = True, labels: Labels | None = None) -> Reader:
        columns = self.columns(data, self.named(data, corpus), self.REQUIRED, (ALIGNMENT,))
        return Reader(self, (*self.REQUIRED, ALIGNMENT), columns)

    def groups(self, files: Sequence[DataFile], data: Data, corpus: object) -> list[Sequence[DataFile]]:
        if not isinstance(corpus, FilePair):
            return super().groups(files, data, corpus)
        return [files[n : n + 2] for n in range(0, len(files), 2)]

    def try_read(
        self, group: Sequence[DataFile], data: Data, corpus: object, labels: Labels | None = None
    ) -> Iterator[Any]:
        if not isinstance(corpus, FilePair):
            return super().try_read(group, data, corpus, labels)
        source, target = group
        return _parallel_lines(source, target, data)

    def example(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], labelled: bool) -> Pair:
        target, *alternatives = texts_of(row["target"], where, names["target"])
        source, alignment = text_of(row["source"], where, names["source"]), row.get(ALIGNMENT)
        if not source.strip():
            raise DataFault.located(where, f"{names['source']!r} is empty", hint="remove the row")
        alignment = None if alignment is None else text_of(alignment, where, ALIGNMENT)
        return Pair(source, target, where, alignment, tuple(alternatives))

    def to_json(self, example: Pair) -> list[Any]:
        return [example.source, example.target, example.alignment, example.alternatives]

    def of_json(self, fields: Any, where: str) -> Pair:
        source, target, alignment, alternatives = fields
        return Pair(source, target, where, alignment, tuple(alternatives))

    def source_and_references(self, example: Pair) -> tuple[str, Sequence[str]]:
        return example.source, example.references

    def size(self, example: Pair) -> int:
        return len(example.source) + len(example.target)

    def texts(self, example: Pair, source: bool = False) -> Sequence[str]:
        return (example.source,) if source else (example.target,)

    def split_key(self, example: Pair) -> str:
        return example.source

    def content_key(self, example: Pair) -> str:
        return f"{len(example.source)} {example.source}{example.target}"

    def encode(self, examples: Sequence[Pair], tokenizers: Tokenizers, labels: Labels | None) -> list[Encoded]:
        encoded = {}
        for role, tokenizer in zip(self.REQUIRED, tokenizers, strict=True):
            texts = tokenizer.encode_batch([getattr(pair, role) for pair in examples])
            encoded[role] = [or_unknown(ids, tokenizer.vocabulary) for ids in texts]
        for pair, *both in zip(examples, *encoded.values(), strict=True):
            for role, ids in zip(self.REQUIRED, both, strict=True):
                if not ids.size:
                    raise DataFault.located(pair.where, f"the {role} has no tokens")
        return [Encoded(target, source=source) for source, target in zip(*encoded.values(), strict=True)]

    def packing(self, store: Store, shape: Shape) -> Packing:
        assert store.source is not None
        first, lengths, source = store.starts + 1, store.lengths, store.source
        longest = shape.context - (len(store.vocabulary.target_start) - 1)
        targets = Spans.of(first, first + np.minimum(lengths, longest), closed=lengths < longest)
        first_source, longest_source = source.starts + 1, shape.context - len(source_start(source)) - 1
        last_source = first_source + np.minimum(source.lengths, longest_source)
        sources = Spans.of(first_source, between_characters(source.vocabulary, source.ids, last_source, first_source))
        n_too_long = int(((lengths >= longest) | (source.lengths > longest_source)).sum())
        return ExampleRows(store, shape, targets, sources, n_too_long)

    def summary(self, data: TokenizedData) -> Iterator[str]:
        assert data.train.source is not None
        yield f"data: {self.size_summary(data)}"
        yield f"source lengths: {describing.length_summary(data.train.source)}"
        yield f"target lengths: {describing.length_summary(data.train)}"

    def stats(self, data: TokenizedData, packings: Mapping[str, Packing]) -> tuple[list[str], dict[str, Any]]:
        assert data.train.source is not None
        assert data.val.source is not None
        stores = {split: {"source": store.source, "target": store} for split, store in data.splits.items()}
        splits = {
            split: {role: describing.store_statistics(store) for role, store in roles.items() if store is not None}
            for split, roles in stores.items()
        }
        by_role = {f"{split} {role}": facts for split, roles in splits.items() for role, facts in roles.items()}
        counts = {split: {"pairs": packing.n_rows, "cut": packing.n_too_long} for split, packing in packings.items()}
        shared = describing.n_shared_documents(data.train.source, data.val.source)
        size, source_size = data.tokenizer.vocabulary.size, data.source_tokenizer.vocabulary.size
        vocabulary = f"source {source_size:,} tokens, target {size:,} tokens"
        if data.tokenizer is data.source_tokenizer:
            vocabulary = f"{size:,} tokens, shared by source and target"
        n_pairs, n_cut = (", ".join(f"{split} {n[key]:,}" for split, n in counts.items()) for key in ("pairs", "cut"))
        context = f"train.context ({packings['train'].shape.context} tokens)"
        lines = [
            *describing.format_statistics(by_role),
            f"pairs: {n_pairs}",
            f"pairs longer than {context}, which are truncated: {n_cut}",
            f"vocabulary: {vocabulary}",
            f"sources in both splits: {shared}",
        ]
        sizes = {"vocabulary": size, "source_vocabulary": source_size, "sources_on_both_sides": shared}
        return lines, {split: counts[split] | splits[split] for split in splits} | sizes

    def describe_row(self, data: TokenizedData, rows: Rows, batch: Batch, row: int, training: bool) -> dict[str, Any]:
        assert rows.source is not None
        ids = describing.ids_without_padding(rows.source, row)
        positions = describing.tokens_by_position(data.source_tokenizer, ids)
        source = {"padding": rows.source.ids.shape[1] - len(positions), "positions": positions}
        return describing.describe_example_row(data.tokenizer, rows, batch, row) | {"source": source}

    def row_table(self, row: Mapping[str, Any], head: str) -> list[str]:
        return describing.source_and_target_table(row, head)


def _parallel_lines(source: DataFile, target: DataFile, data: Data) -> Iterator[Pair | DataFault]:
    """The pairs of lines, with a DataFault for an empty line; raises DataFault if one file has more lines."""
    both = [read_lines(file.path, file.name, data.errors) for file in (source, target)]
    for pair in itertools.zip_longest(*both):
        if None in pair:
            short, long, number = (source, target, pair[1][0]) if pair[0] is None else (target, source, pair[0][0])
            n_long = number + sum(1 for lines in both for _ in lines)
            fault = f"no corresponding line: this file has {n_long:,} lines, {short.name} {number - 1:,}"
            hint = "both files must have the same number of lines"
            raise DataFault.located(f"{long.name}:{number}", fault, hint=hint)
        (number, source_line), (_, target_line) = pair
        empty = [file.name for file, line in ((source, source_line), (target, target_line)) if not line.strip()]
        if empty:
            yield DataFault.located(f"{empty[0]}:{number}", "the line is empty", hint="remove the line from both files")
            continue
        yield Pair(source_line.removesuffix("\n"), target_line.removesuffix("\n"), f"{source.name}:{number}")
