"""Dataset types: how examples are read, split, encoded, packed into rows, and shown.

This file is the contract; every other one is a dataset type, which an objective names (`DATASET`) and whose `Settings`
it passes on (`ObjectiveSettings.dataset`). Each dataset chooses the type of its examples.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.examples import Labels
from mini_tf.data.formats.columns import Cell, Columns
from mini_tf.data.formats.data_files import DataFile, find_files
from mini_tf.data.formats.tables import Row, try_rows
from mini_tf.data.packing import Packing, Shape
from mini_tf.data.split import DataSplit, ExampleHasher, Examples, hold_out, hold_out_fold, split_as_given
from mini_tf.data.store import Encoded, Store, Tokenizers
from mini_tf.recipe import kind_settings
from mini_tf.recipe.data import Data, Split
from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault, raise_first_fault


@dataclass(frozen=True)
class TokenizedData:
    """The tokenized splits. hashes: `data` (the ids), `tokenizer`, and `source_tokenizer` if it is another one."""

    train: Store
    val: Store
    tokenizers: Tokenizers
    notes: list[str]
    hashes: dict[str, str]
    labels: Labels | None = None

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of targets, or of labelled texts."""
        return self.tokenizers.target

    @property
    def source_tokenizer(self) -> Any:
        """The same object as `tokenizer` if they share a vocabulary."""
        return self.tokenizers.source

    @property
    def splits(self) -> dict[str, Store]:
        return {"train": self.train, "val": self.val}


TEXT_COLUMNS = (
    *("sentence", "sentence1", "review", "content", "body", "comment"),
    *("question", "message", "tweet", "document", "article", "post"),
)
"""Common names of text columns."""


@dataclass(frozen=True)
class Reader:
    """Converts table rows to examples. roles: of `columns.names`, followed by those of `columns.optional`."""

    dataset: "Dataset"
    roles: tuple[str, ...]
    columns: Columns
    labelled: bool = True
    """Whether labels are required."""

    def read(self, files: Iterable[DataFile]) -> Iterator[Any]:
        """All examples of tables in order; DataFault at the first invalid row."""
        return raise_first_fault(example for file in files for example in self.try_read(file))

    def try_read(self, file: DataFile) -> Iterator[Any]:
        """All examples of a table in order; yields a DataFault for an invalid row."""
        for row in try_rows(file, self.columns):
            try:
                yield self.example(*raise_first_fault([row]))
            except DataFault as fault:
                yield fault

    def example(self, row: Row) -> Any:
        """The example of a row."""
        needed = len(row.cells)
        cells = dict(zip(self.roles[:needed], row.cells, strict=True))
        cells |= {role: cell for role, cell in zip(self.roles[needed:], row.optional, strict=True) if cell is not None}
        return self.dataset.example(cells, row.where, self.names, self.labelled)

    def line(self, line: str, where: str) -> Any:
        """The example of a line, which is plain text, or a JSON object if it begins with {; DataFault if it is invalid.

        A key of the object is the name of the column, its role (text, text_pair), or an alias of it (`ROLE_ALIASES`).
        """
        columns, needed = self.columns, len(self.columns.names)
        if not line.lstrip().startswith("{"):
            if needed > 1:
                missing = "label" if self.roles[1] in self.dataset.LABELS else "second text"
                raise DataFault.located(where, f"a line of plain text has no {missing}", hint=self._json_form)
            return self.example(Row([line], where, [None for _ in columns.optional]))
        try:
            fields = strict_json.parse(line)
        except ValueError as error:
            hint = f"write a text that begins with {{ as JSON: {self._json_form}"
            raise DataFault.located(where, f"not valid JSON: {error}", hint=hint) from None
        keys = [
            next((key for key in (name, role, self.dataset.ROLE_ALIASES.get(role)) if key in fields), None)
            for role, name in self.names.items()
        ]
        for key, role in zip(keys[:needed], self.roles[:needed], strict=True):
            if key is None:
                raise DataFault.located(where, f"{role!r} is missing", hint=self._json_form)
        cells: list[Cell] = [None if key is None else fields[key] for key in keys]
        return self.example(Row(cells[:needed], where, cells[needed:]))

    @property
    def _json_form(self) -> str:
        """The expected form of a JSON line."""
        return "write {" + ", ".join(f'"{role}": ...' for role in self.roles[: len(self.columns.names)]) + "}"

    @property
    def names(self) -> dict[str, str]:
        """The column name of each role."""
        columns = [*self.columns.names, *self.columns.optional]
        return {role: name or role for role, name in zip(self.roles, columns, strict=True)}


class Dataset(kind_settings.DatasetSettings):
    """Base class of dataset types."""

    LABELS: ClassVar[frozenset[str]] = frozenset()
    """Roles of label columns; `predict` does not require them."""
    ROLE_ALIASES: ClassVar[Mapping[str, str]] = {}
    """Further names of roles in a JSON line."""
    COMMON_NAMES: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Common column names of each role, in lower case; used if `data.fields` does not name the column."""
    FURTHER_TEXTS: ClassVar[frozenset[str]] = frozenset()
    """Common names, in lower case, of columns with a part of the input; a note names one that is not read."""
    SPLIT_UNIT: ClassVar[str | None] = None
    """Name of the split keys in messages (such as "sources"); default UNIT."""
    TRUNCATES: ClassVar[str | None] = "end"
    """The part that an example longer than the context loses; None: it is split into several rows instead."""
    ROW: ClassVar[str] = "one example per row"
    """Description of a row in `data show`; {pack} is the recipe's data.pack."""
    BORDER: ClassVar[str] = "its row"
    """What a token attends within, unless `data.pack` is docs."""
    KEEPS_EXAMPLES: ClassVar[bool] = True
    """The original examples are stored beside their ids."""
    STRATIFIED: ClassVar[bool] = False
    """Each fold of a cross-validation has its share of each class; an example has one class."""

    # Reading

    def find(self, corpus: object, key: str) -> list[DataFile]:
        """The files of data.train or data.val; DataFault if one is missing or not a table."""
        tables = find_files(corpus, key)
        for table in tables:
            if table.format == "txt":
                hints = {"stdin": "a pipe has no suffix: save it as a file"}
                hint = hints.get(table.name, "its name must have one of these suffixes")
                fault = f"{key}: {table.name} is not a table (jsonl, csv, tsv, parquet, conll)"
                raise DataFault(fault, hint=hint, where=(table.name,))
        return tables

    def reader(self, data: Data, corpus: object = None, labelled: bool = True, labels: Labels | None = None) -> Reader:
        """Columns are named like their roles, unless data.fields names them.

        corpus: the value of data.train or data.val. labels: of a trained run, with the number of texts of an example.
        """
        named = self.named(data, corpus)
        needed = [role for role in self.REQUIRED if labelled or role not in self.LABELS]
        of_labels = {"text_pair"} if labels is not None and labels.n_texts == 2 else set()
        needed += [role for role in self.OPTIONAL if role in named.keys() | of_labels]
        others = [role for role in self.OPTIONAL if not named and role not in needed]
        return Reader(self, (*needed, *others), self.columns(data, named, needed, others), labelled)

    def columns(
        self, data: Data, named: Mapping[str, str], needed: Sequence[str], others: Sequence[str] = ()
    ) -> Columns:
        """The columns of the roles: `needed` ones are required, `others` optional.

        Roles that are not `named` have the column of their name, a common one, or without a header the recipe's number.
        """
        likely = {role: self.COMMON_NAMES.get(role, ()) for role in needed if role not in named}
        numbers = {role: str(number) for role, number in data.field_numbers.items() if role not in named}
        names = tuple(named.get(role, role) for role in needed)
        return Columns(names, data.header, data.errors, tuple(others), likely, numbers)

    def named(self, data: Data, corpus: object) -> dict[str, str]:
        """The column of each role that the recipe names; built-in corpora may have other column names."""
        return dict(data.fields)

    def read(
        self, files: Sequence[DataFile], data: Data, corpus: object, labels: Labels | None = None
    ) -> Iterator[Any]:
        """All examples of the files that `find` returned for `corpus`; DataFault at the first invalid row."""
        groups = self.groups(files, data, corpus)
        return raise_first_fault(example for group in groups for example in self.try_read(group, data, corpus, labels))

    def groups(self, files: Sequence[DataFile], data: Data, corpus: object) -> list[Sequence[DataFile]]:
        """The files in groups that can be read independently; default: each by itself."""
        return [[file] for file in files]

    def try_read(
        self, group: Sequence[DataFile], data: Data, corpus: object, labels: Labels | None = None
    ) -> Iterator[Any]:
        """The examples of a group of files, and a DataFault for an invalid row; raises it if the rest is unreadable."""
        return self.reader(data, corpus, labels=labels).try_read(*group)

    def example(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], labelled: bool) -> Any:
        """The example of a row. row: cells by role, without missing columns. names: column names by role, for messages.

        labelled False: labels are not required. Raises DataFault with `where` if the row is invalid.
        """
        raise NotImplementedError

    def to_json(self, example: Any) -> Any:
        """An example as JSON, without `where`."""
        return [*example]

    def of_json(self, fields: Any, where: str) -> Any:
        """The inverse of `to_json`."""
        raise NotImplementedError

    def examples(self, store: Store) -> Iterator[Any]:
        """The original examples in order. Their `where` is a number from 1, since the file may have been renamed."""
        assert store.raw is not None
        with store.raw.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield self.of_json(json.loads(line), f"{self.UNIT.removesuffix('s')} {number}")

    def dropped(self, examples: Sequence[Any]) -> dict[str, int]:
        """Notes about parts of examples that are dropped or unclear, each with a count; {n} in a note is the total."""
        return {}

    def classes(self, example: Any) -> Sequence[str]:
        """The classes in an example's labels, all of which must be in the training split; empty without classes."""
        return ()

    def source_and_references(self, example: Any) -> tuple[str, Sequence[str]]:
        """What the target of an example is written for, and all its references; only with texts as targets."""
        raise NotImplementedError

    # Splitting

    def texts(self, example: Any, source: bool = False) -> Sequence[str]:
        """The texts of an example that are encoded; `source`: those of its source."""
        raise NotImplementedError

    def size(self, example: Any) -> int:
        """Characters of an example."""
        return sum(map(len, example.texts))

    def is_first_part(self, example: Any) -> bool:
        """False for the later parts of a long example that is read in parts."""
        return True

    def split_key(self, example: Any) -> str:
        """The model's input, without the target: examples with the same key are in the same split."""
        return "\0".join(self.texts(example))

    def content_key(self, example: Any) -> str:
        """Identifies duplicates: the whole content of an example."""
        return json.dumps(self.to_json(example))

    def split(self, train: Examples, val: Examples | None, split: Split) -> DataSplit:
        """The validation split is a share or fold of `train`, or `val` without examples that are also in `train`."""
        if val is not None:
            return split_as_given(train, val, self.hasher(content=True))
        if split.folds is not None:
            return hold_out_fold(train, self.hasher(content=False), split.folds, split.fold or 1)
        return hold_out(train, self.hasher(content=False), split.share)

    def hasher(self, content: bool) -> ExampleHasher:
        """Hashes examples by `content_key`, or by `split_key`."""
        key, unit = (self.content_key, self.UNIT) if content else (self.split_key, self.SPLIT_UNIT or self.UNIT)
        stratum = (lambda example: self.classes(example)[0]) if self.STRATIFIED else None
        return ExampleHasher(key, self.size, self.is_first_part, unit, stratum)

    # Encoding and rows

    def separated(self, data: Data) -> bool:
        """Whether examples are separated by separators."""
        return True

    def fit_labels(self, examples: Iterable[Any]) -> Labels | None:
        """The labels of the training split; None if only tokens are predicted."""
        return None

    def read_labels(self, config: Mapping[str, Any]) -> Labels | None:
        """The labels in a run's config.json; ValueError or KeyError if they are invalid."""
        return None

    def encode(self, examples: Sequence[Any], tokenizers: Tokenizers, labels: Labels | None) -> list[Encoded]:
        """Ids and labels of examples; DataFault if a label is unknown, or a text has no tokens."""
        raise NotImplementedError

    def packing(self, store: Store, shape: Shape) -> Packing:
        """The rows of a store."""
        raise NotImplementedError

    # Messages of commands

    def size_summary(self, data: TokenizedData) -> str:
        """The sizes of both splits, on one line."""
        return f"{data.train.n_documents:,} training {self.UNIT}, {data.val.n_documents:,} validation {self.UNIT}"

    def summary(self, data: TokenizedData) -> Iterator[str]:
        """The lines that are printed at the start of a run."""
        raise NotImplementedError

    def stats(self, data: TokenizedData, packings: Mapping[str, Packing]) -> tuple[list[str], dict[str, Any]]:
        """`data stats` as lines of text and as JSON. packings: of each split."""
        raise NotImplementedError

    def describe_row(self, data: TokenizedData, rows: Rows, batch: Batch, row: int, training: bool) -> dict[str, Any]:
        """One row as JSON for `data show`: the input and the target of each position."""
        raise NotImplementedError

    def row_table(self, row: Mapping[str, Any], head: str) -> list[str]:
        """The output of `describe_row` as lines of a table, with `head` before them."""
        raise NotImplementedError
