"""Pairs of a source and a target: two files whose lines belong together, or the rows of a table.

Nothing is repaired: a side that is empty, or has no partner, is refused with its file and line. Which pairs are held out is
decided by a hash of the source alone, so that no source stands on both sides of a split. What is longer than the context is cut: a
source before its closing separator, which stays; a target at its end, whose closing separator is then not predicted.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mini_tf.data import describing
from mini_tf.data.batch import Batch, Rows
from mini_tf.data.datasets import Dataset, Reader, TokenizedData
from mini_tf.data.examples import Pair
from mini_tf.data.formats.cells import Cell, text_of, texts_of
from mini_tf.data.formats.data_files import DataFile, find_files
from mini_tf.data.formats.text_lines import read_lines
from mini_tf.data.labels import Labels
from mini_tf.data.packing import OneEach, Packing, Shape, Spans
from mini_tf.data.store import Encoded, Store, Tokenizers
from mini_tf.recipe.data import Data, FilePair
from mini_tf.system.errors import DataFault

ALIGNMENT = "alignment"
"""The column of a table that holds links between words, Pharaoh's `0-0 1-2`."""


class Settings(Dataset):
    REQUIRED = TOGETHER = ("source", "target")
    LIKELY = {"source": ("src", "input", "document", "article"), "target": ("tgt", "output", "summary", "translation", "reference")}
    COLUMNS_HINT = "pairs read two columns: {source: COLUMN, target: COLUMN}"
    UNIT = ROW = "pairs"
    SOURCE = True
    KNOWN_BY = "sources"

    def find(self, corpus: object, key: str) -> list[DataFile]:
        if not isinstance(corpus, FilePair):
            tables = find_files(corpus, key)
            for table in tables:
                if table.format in ("txt", "conll", "conllu"):
                    hint = "two files of lines are given as {source: FILE, target: FILE}"
                    raise DataFault(f"{key}: {table.name} is no table (jsonl, csv, tsv, parquet)", hint=hint, where=(table.name,))
            return tables
        sides = [find_files(getattr(corpus, role), f"{key}.{role}") for role in self.REQUIRED]
        for role, files in zip(self.REQUIRED, sides, strict=True):
            for file in files:
                if file.format != "txt":
                    hint = "a table is given alone, with data.fields={source: COLUMN, target: COLUMN}"
                    raise DataFault(f"{key}.{role}: {file.name} is read as {file.format}, not by lines", hint=hint, where=(file.name,))
        if len(sides[0]) != len(sides[1]):
            raise DataFault(f"{key}: {len(sides[0])} files of sources, {len(sides[1])} of targets; each needs its partner")
        return [*itertools.chain.from_iterable(zip(*sides, strict=True))]

    def reader(self, data: Data, corpus: object = None, labelled: bool = True, labels: Labels | None = None) -> Reader:
        columns = self.columns(data, self.named(data, corpus), self.REQUIRED, (ALIGNMENT,))
        return Reader(self, (*self.REQUIRED, ALIGNMENT), columns)

    def parts(self, files: Sequence[DataFile], data: Data, corpus: object, labels: Labels | None = None) -> Iterator[Iterator[Any]]:
        if not isinstance(corpus, FilePair):
            return super().parts(files, data, corpus, labels)
        return (_aligned(source, target, data) for source, target in zip(files[::2], files[1::2], strict=True))

    def example(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], labelled: bool) -> Pair:
        target, *further = texts_of(row["target"], where, names["target"])
        source, links = text_of(row["source"], where, names["source"]), row.get(ALIGNMENT)
        if not source.strip():
            raise DataFault(f"{where}: {names['source']!r} is empty", hint="remove the row", where=(where,))
        return Pair(source, target, where, None if links is None else text_of(links, where, ALIGNMENT), tuple(further))

    def to_json(self, example: Pair) -> list[Any]:
        return [example.source, example.target, example.alignment, example.further]

    def of_json(self, given: Any, where: str) -> Pair:
        source, target, alignment, further = given
        return Pair(source, target, where, alignment, tuple(further))

    def size(self, example: Pair) -> int:
        return len(example.source) + len(example.target)

    def texts(self, example: Pair, source: bool = False) -> Sequence[str]:
        return (example.source,) if source else (example.target,)

    def known_by(self, example: Pair) -> str:
        return example.source

    def whole(self, example: Pair) -> str:
        return f"{len(example.source)} {example.source}{example.target}"

    def encode(self, examples: Sequence[Pair], used: Tokenizers, labels: Labels | None) -> list[Encoded]:
        sources = used.source.encode_batch([pair.source for pair in examples])
        targets = used.target.encode_batch([pair.target for pair in examples])
        for pair, *sides in zip(examples, sources, targets, strict=True):
            for role, ids in zip(self.REQUIRED, sides, strict=True):
                if not ids.size:
                    raise DataFault(f"{pair.where}: the tokenizer leaves nothing of the {role}", where=(pair.where,))
        return [Encoded(target, source=source) for source, target in zip(sources, targets, strict=True)]

    def packing(self, store: Store, shape: Shape) -> Packing:
        assert store.source is not None
        first, lengths, sources = store.starts + 1, store.lengths, store.source
        targets = Spans.of(first, first + np.minimum(lengths, shape.context), closed=lengths < shape.context)
        read = Spans.of(sources.starts + 1, sources.starts + 1 + np.minimum(sources.lengths, shape.context - 1))
        return OneEach(store, shape, targets, read, int((np.maximum(lengths, sources.lengths) >= shape.context).sum()))

    def summary(self, text: TokenizedData) -> Iterator[str]:
        assert text.train.source is not None
        yield f"data: {text.train.n_documents:,} training pairs, {text.val.n_documents:,} validation pairs"
        yield f"lengths of sources: {describing.lengths(text.train.source)}"
        yield f"lengths of targets: {describing.lengths(text.train)}"

    def stats(self, text: TokenizedData, packings: Mapping[str, Packing]) -> tuple[list[str], dict[str, Any]]:
        """A side is a text of its own, with its own vocabulary if it has one."""
        assert text.train.source is not None
        assert text.val.source is not None
        stores = {side: {"source": store.source, "target": store} for side, store in text.sides.items()}
        sides = {side: {role: describing.measure(one) for role, one in roles.items() if one} for side, roles in stores.items()}
        counts = {side: {"pairs": packing.n_rows, "cut": packing.n_longer} for side, packing in packings.items()}
        shared = describing.on_both_sides(text.train.source, text.val.source)
        sizes = {"vocabulary": text.tokenizer.vocabulary.size, "source_vocabulary": text.source_tokenizer.vocabulary.size}
        context, own = packings["train"].shape.context, f" of the target, {sizes['source_vocabulary']:,} of the source"
        lines = [
            *describing.columns({f"{side} {role}": measured for side, roles in sides.items() for role, measured in roles.items()}),
            "pairs: " + ", ".join(f"{side} {counts[side]['pairs']:,}" for side in counts),
            f"pairs longer than train.context {context}: " + ", ".join(f"{side} {counts[side]['cut']:,}" for side in counts),
            f"vocabulary: {sizes['vocabulary']:,} tokens{' for both sides' if text.tokenizer is text.source_tokenizer else own}",
            f"sources on both sides: {shared}",
        ]
        return lines, {side: counts[side] | sides[side] for side in sides} | sizes | {"sources_on_both_sides": shared}

    def shown(self, text: TokenizedData, rows: Rows, batch: Batch, row: int, training: bool) -> dict[str, Any]:
        assert rows.source is not None
        places = describing.read_of(text.source_tokenizer, describing.without_padding(rows.source, row))
        source = {"padding": rows.source.ids.shape[1] - len(places), "places": places}
        return describing.between_separators(text.tokenizer, rows, batch, row) | {"source": source}

    def table(self, row: Mapping[str, Any], head: str) -> list[str]:
        """The source beside the target; place n of the one has nothing to do with place n of the other."""
        sides: Any = itertools.zip_longest(row["source"]["places"], row["places"], fillvalue={})
        cells = ((f"{n:>7}", (source.get("reads"), target.get("reads"), target.get("target"))) for n, (source, target) in enumerate(sides))
        told = f"{head}: source {describing.size_of(row['source'])}, target {describing.size_of(row)}"
        return [told, *describing.table([(f"{'place':>7}", ("source", "reads", "is asked for")), *cells])]


def _aligned(source: DataFile, target: DataFile, data: Data) -> Iterator[Pair | DataFault]:
    """Lines in pairs, and a fault in the place of one that has an empty side; DataFault where one has no partner."""
    sides = [read_lines(file.path, file.name, data.errors) for file in (source, target)]
    for pair in itertools.zip_longest(*sides):
        if None in pair:
            short, long, number = (source, target, pair[1][0]) if pair[0] is None else (target, source, pair[0][0])
            n_long = number + sum(1 for side in sides for _ in side)
            told = f"{long.name}:{number}: this line has no partner: it has {n_long:,} lines, {short.name} {number - 1:,}"
            hint = "both files must have the same number of lines, each the partner of the other"
            raise DataFault(told, hint=hint, where=(f"{long.name}:{number}",))
        (number, source_line), (_, target_line) = pair
        empty = [file.name for file, line in ((source, source_line), (target, target_line)) if not line.strip()]
        if empty:
            yield DataFault.located(f"{empty[0]}:{number}", "the line is empty", hint="take the line out of both files")
            continue
        yield Pair(source_line.removesuffix("\n"), target_line.removesuffix("\n"), f"{source.name}:{number}")
