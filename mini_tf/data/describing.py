"""What `data stats`, `data show` and `data check` print, for any dataset."""

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args

import numpy as np

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.datasets import Dataset
from mini_tf.data.examples import unknown_label
from mini_tf.data.formats.text_lines import undecodable_lines
from mini_tf.data.packing import Packing
from mini_tf.data.raw import Files, RawData
from mini_tf.data.split import DataSplit, Examples, SplitName
from mini_tf.data.store import Store
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.data import Data
from mini_tf.system.errors import DataFault

CAPTIONS = {
    "tokens_per_byte": "tokens per byte",
    "different_tokens": "distinct tokens",
    "unknown_tokens": "unknown tokens",
    "shortest_document": "shortest, in tokens",
    "median_document": "median length, in tokens",
    "95_percent_up_to": "95th percentile, in tokens",
    "longest_document": "longest, in tokens",
    "cut": "longer than the context",
}
"""Names of statistics in tables, where they differ from the keys in --json."""


def length_summary(store: Store) -> str:
    """The distribution of document lengths on one line."""
    median, percentile_95, longest = np.quantile(store.lengths, [0.5, 0.95, 1.0]).astype(int).tolist()
    return f"median {median} tokens, 95th percentile {percentile_95}, maximum {longest}"


def store_statistics(store: Store) -> dict[str, float]:
    """Sizes and document lengths of a store, by name."""
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


def n_shared_documents(train: Store, val: Store, length: int | None = None) -> int:
    """Number of distinct documents (by their ids, or by the first `length` of these) that are in both stores."""

    def hashes(store: Store) -> set[bytes]:
        documents = (store.document(n)[:length].tobytes() for n in range(store.n_documents))
        return {hashlib.blake2b(ids, digest_size=16).digest() for ids in documents}

    return len(hashes(train) & hashes(val))


def format_statistics(splits: Mapping[str, Mapping[str, float]]) -> list[str]:
    """`format_columns` of what `store_statistics` returns."""
    named = ({CAPTIONS.get(name, name): n for name, n in numbers.items()} for numbers in splits.values())
    return format_columns(dict(zip(splits, named, strict=True)))


def format_columns(columns: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A table with one column for each mapping; all mappings have the same keys, which name the rows."""
    names = list(next(iter(columns.values())))
    width = max(map(len, names))
    lines = [f"{'':{width}}" + "".join(f" {head:>12}" for head in columns)]
    for name in names:
        values = (column[name] for column in columns.values())
        cells = (f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" for value in values)
        lines.append(f"{name:{width}}" + "".join(f" {cell:>12}" for cell in cells))
    return lines


def tokens_by_position(tokenizer: Tokenizer, ids: np.ndarray) -> list[dict[str, Any]]:
    """For each position of `ids` (n,): its index, id and token."""
    pairs = zip(ids, tokenizer.pieces(ids), strict=True)
    return [{"position": n, "id": int(id), "reads": piece} for n, (id, piece) in enumerate(pairs)]


def describe_token_row(
    tokenizer: Tokenizer, rows: Rows, batch: Batch, row: int, documents: np.ndarray
) -> dict[str, Any]:
    """Inputs and targets of one row. documents: the document of each position, from 1; 0 = padding."""
    inputs = batch.inputs.ids.numpy()[row]
    replaced = replaced_tokens(tokenizer, inputs, rows.ids[row, : len(inputs)])
    return _described(tokenizer, batch, row, documents, [{"replaced": id_} for id_ in replaced])


def _described(
    tokenizer: Tokenizer, batch: Batch, row: int, documents: np.ndarray, more: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Inputs and targets of one row; more: further entries of each position."""
    inputs = batch.inputs.ids.numpy()
    targets = np.full(inputs.size, -1)
    at = np.arange(inputs.size) if batch.target_positions is None else batch.target_positions.numpy()
    targets[at] = batch.labels.numpy()
    tokens, of_row = tokens_by_position(tokenizer, inputs[row]), targets.reshape(inputs.shape)[row]
    names = (tokenizer.pieces([target])[0] if target >= 0 else None for target in of_row)
    positions = [
        {"position": token["position"], "document": int(document), **token, "target": target, **entries}
        for token, document, target, entries in zip(tokens, documents, names, more, strict=True)
        if document
    ]
    return {"padding": inputs.shape[1] - len(positions), "positions": positions}


def describe_row_with_source(tokenizer: Tokenizer, batch: Batch, row: int) -> dict[str, Any]:
    """Source, inputs and targets of one row whose source was made by the objective."""
    assert batch.source is not None
    ids, documents = batch.source.ids.numpy()[row], segments_of(batch.source, row)
    tokens = zip(tokens_by_position(tokenizer, ids), documents.tolist(), strict=True)
    positions = [
        {"position": token["position"], "document": document, **token} for token, document in tokens if document
    ]
    target = _described(tokenizer, batch, row, segments_of(batch.inputs, row), [{}] * batch.inputs.ids.shape[1])
    return target | {"source": {"padding": len(ids) - len(positions), "positions": positions}}


def segments_of(tokens: Tokens, row: int) -> np.ndarray:
    """The document of each token of a row, from 1; 0 = padding."""
    segments = None if tokens.token_positions is None else tokens.token_positions.segments
    return np.ones(tokens.ids.shape[1], np.int64) if segments is None else segments[row].numpy()


def describe_example_row(tokenizer: Tokenizer, rows: Rows, batch: Batch, row: int) -> dict[str, Any]:
    """`describe_token_row` of a row that is one example; its closing separator is a target, but not an input."""
    documents = np.ones(rows.ids.shape[1] - 1, int) if rows.segments is None else rows.segments[row, 1:]
    return describe_token_row(tokenizer, rows, batch, row, documents)


def replaced_tokens(tokenizer: Tokenizer, inputs: np.ndarray, original: np.ndarray) -> list[str | None]:
    """The original token of each position whose input differs from it (for example a masked one), else None."""
    pieces = zip(inputs, original, tokenizer.pieces(original), strict=True)
    return [piece if id != before else None for id, before, piece in pieces]


def ids_without_padding(rows: Rows, row: int) -> np.ndarray:
    ids: np.ndarray = rows.ids[row] if rows.segments is None else rows.ids[row][rows.segments[row] != 0]
    return ids


def row_size(row: Mapping[str, Any]) -> str:
    return f"{len(row['positions'])} tokens" + (f" + {row['padding']} padding" if row["padding"] else "")


def format_table(lines: Iterable[tuple[str, Sequence[Any]]]) -> list[str]:
    """Lines of a left cell and further cells 20 wide. The first line is the head; other cells are quoted."""
    head, *rows = lines
    quoted = [(left, ["" if cell is None else repr(cell) for cell in cells]) for left, cells in rows]
    return [f"{left}  {' '.join(f'{cell:<20}' for cell in cells)}".rstrip() for left, cells in [head, *quoted]]


def source_and_target_table(row: Mapping[str, Any], head: str) -> list[str]:
    """The source beside the target; the tokens of a line are at the same position, but need not correspond."""
    both: Any = itertools.zip_longest(row["source"]["positions"], row["positions"], fillvalue={})
    lines = [(f"{'position':>8}", ("source", "target input", "target"))]
    for n, (source, target) in enumerate(both):
        lines.append((f"{n:>8}", (source.get("reads"), target.get("reads"), target.get("target"))))
    return [f"{head}: source {row_size(row['source'])}, target {row_size(row)}", *format_table(lines)]


def token_table(row: Mapping[str, Any], head: str, with_original: bool = True) -> list[str]:
    """A row as a table, one line per position. with_original: with a column of tokens that others have replaced."""
    columns = {"input": "reads", "target": "target"} | ({"original": "replaced"} if with_original else {})
    numbers = [name for name in ("position", "document") if name in row["positions"][0]]
    lines = (
        (" ".join(f"{token[name]:>8}" for name in numbers), [token[key] for key in columns.values()])
        for token in row["positions"]
    )
    names = (" ".join(f"{name:>8}" for name in numbers), [*columns])
    return [f"{head}: {row_size(row)}", *format_table([names, *lines])]


@dataclass
class Faults:
    """The messages of the first `limit` faults, and the number of all faults."""

    limit: int
    messages: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, fault: DataFault, consequence: str = "") -> None:
        self.count += 1
        if len(self.messages) < self.limit:
            self.messages.append("; ".join(filter(None, (fault.message, consequence, fault.hint))))


@dataclass(frozen=True)
class SplitReport:
    """Counts of one split. duplicates: examples that repeat an earlier one; classes: examples of each class."""

    examples: int
    characters: int
    duplicates: int
    classes: Counter[str]


@dataclass(frozen=True)
class DataReport:
    """faults: empty if the recipe can be trained. splits: of `train` and `val`; empty if the data cannot be split.

    n_val_in_train: examples of data.val that are also in data.train; training removes them from the validation split.
    """

    faults: Faults
    splits: dict[str, SplitReport]
    n_val_in_train: int


def check_data(dataset: Dataset, data: Data, limit: int) -> DataReport:
    """Read all files of a recipe; report the first `limit` faults; split and count the valid examples."""
    raw = RawData(dataset, data)
    faults, files = Faults(limit), raw.files
    readable = {split: source for split, source in files.items() if _exists(source, faults)}
    for source in readable.values():
        if not sum(1 for _ in _valid_examples(source, faults)) and not faults.count:
            faults.add(source.no_examples())
            return DataReport(faults, {}, 0)
    if len(readable) < len(files):
        return DataReport(faults, {}, 0)
    ignored, sample = Faults(0), None if faults.count else raw.sample
    examples = {split: Examples.of(partial(_valid_examples, source, ignored)) for split, source in readable.items()}
    try:
        train, val = examples["train"], examples.get("val")
        data_split = dataset.split(train, val, data.split) if sample is None else sample.whole(train)
        labels = dataset.fit_labels(data_split.examples("train"))
        reports = _split_reports(dataset, data_split)
    except DataFault as fault:  # if most rows are invalid, too few are left; their faults are reported already
        if not faults.count:
            faults.add(fault)
        return DataReport(faults, {}, 0)
    _add_unknown_classes(dataset, data_split, reports, () if labels is None else labels.names, faults)
    n_val = 0 if val is None else sum(map(dataset.is_first_part, val.read()))
    return DataReport(faults, reports, 0 if val is None else n_val - reports["val"].examples)


def _exists(files: Files, faults: Faults) -> bool:
    try:
        return bool(files.sources)
    except DataFault as fault:
        faults.add(fault)
        return False


def _valid_examples(files: Files, faults: Faults) -> Iterator[Any]:
    """The examples that can be read; the others are added to `faults`."""
    strict = files.data.errors == "strict"
    for source in files.sources if strict else ():
        for fault in undecodable_lines(source.path, source.name) if source.format != "parquet" else ():
            faults.add(fault)
    data = files.data.model_copy(update={"errors": "replace"})
    for group in files.dataset.groups(files.sources, data, files.corpus):
        try:
            for example in files.dataset.try_read(group, data, files.corpus, files.labels):
                if isinstance(example, DataFault):
                    faults.add(example)
                else:
                    yield example
        except DataFault as fault:
            faults.add(fault, "the rest was not read")


def _split_reports(dataset: Dataset, data_split: DataSplit) -> dict[str, SplitReport]:
    reports = {}
    for name in get_args(SplitName):
        hashes, characters = dataset.hasher(content=True).scan(data_split.examples(name))
        classes = Counter(label for example in data_split.examples(name) for label in dataset.classes(example))
        reports[name] = SplitReport(len(hashes), characters, len(hashes) - len(np.unique(hashes)), classes)
    return reports


def _add_unknown_classes(
    dataset: Dataset, data_split: DataSplit, reports: dict[str, SplitReport], known: Sequence[str], faults: Faults
) -> None:
    """Add a fault for each class that is not `known`, located at its first example."""
    first: dict[str, str] = {}
    for _, example in data_split.read():
        for name in dataset.classes(example):
            if name not in known:
                first.setdefault(name, example.where)
    for name, where in first.items():
        faults.add(unknown_label(name, known, where, times=sum(report.classes[name] for report in reports.values())))


def length_report(packing: Packing) -> dict[str, int]:
    """Tokens of the longest example (of source or target), and the number of examples that do not fit into a row.

    A document of a stream of text does not have to: of these, the number longer than the context.
    """
    store = packing.store
    lengths = np.maximum(store.lengths, store.source.lengths) if store.source is not None else store.lengths
    return {"longest": int(lengths.max()), "longer": packing.n_too_long or int((lengths > packing.shape.context).sum())}
