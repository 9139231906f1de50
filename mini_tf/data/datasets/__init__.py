"""Datasets: how examples are read, split, tokenized, made into rows, and displayed.

The contract is here; every other file of this package is one dataset, named by an objective (`DATASET`). Its `Settings`
come from the objective (`ObjectiveSettings.dataset`); examples may have any type.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.formats.cells import Cell
from mini_tf.data.formats.columns import Columns
from mini_tf.data.formats.sources import Source, find
from mini_tf.data.formats.tables import Row, try_rows
from mini_tf.data.labels import Labels
from mini_tf.data.packing import Packing, Shape
from mini_tf.data.split import Division, Known, Read, hold_out, keep_apart
from mini_tf.data.store import Encoded, Store, Tokenizers
from mini_tf.recipe import kind_settings
from mini_tf.recipe.data import Data, Split
from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault, raising


@dataclass(frozen=True)
class TokenizedData:
    """Tokenized data of a recipe. hashes: `data` (the ids), `tokenizer`, and `source_tokenizer` if that is another."""

    train: Store
    val: Store
    used: Tokenizers
    notes: list[str]
    hashes: dict[str, str]
    labels: Labels | None = None

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of targets or labeled texts."""
        return self.used.target

    @property
    def source_tokenizer(self) -> Any:
        """The source tokenizer; equal to `tokenizer` with one vocabulary."""
        return self.used.source

    @property
    def sides(self) -> dict[str, Store]:
        return {"train": self.train, "val": self.val}


TEXTS = ("sentence", "sentence1", "review", "content", "body", "comment", "question", "message", "tweet", "document", "article", "post")
"""Usual names of columns with text."""


@dataclass(frozen=True)
class Reader:
    """Converts rows of tables into examples. roles: of the columns, first `columns.names`, then `columns.optional`."""

    dataset: "Dataset"
    roles: tuple[str, ...]
    columns: Columns
    labelled: bool = True
    """Whether labels are required."""

    def read(self, files: Iterable[Source]) -> Iterator[Any]:
        """All examples of tables; DataFault at the first invalid row."""
        return raising(example for file in files for example in self.try_read(file))

    def try_read(self, file: Source) -> Iterator[Any]:
        """All examples of a table; a DataFault in place of an invalid row."""
        for row in try_rows(file, self.columns):
            try:
                [row] = raising([row])
                yield self.example(row)
            except DataFault as fault:
                yield fault

    def example(self, row: Row) -> Any:
        """The example of a row."""
        needed = len(row.cells)
        cells = dict(zip(self.roles[:needed], row.cells, strict=True))
        cells |= {role: cell for role, cell in zip(self.roles[needed:], row.optional, strict=True) if cell is not None}
        return self.dataset.example(cells, row.where, self.names, self.labelled)

    def line(self, line: str, where: str) -> Any:
        """The example of a line, a text or a JSON object (it begins with a brace); DataFault for other JSON.

        In JSON a text is found by its column's name, its role (text, text_pair), or another name that the dataset
        allows.
        """
        columns, needed = self.columns, len(self.columns.names)
        if not line.lstrip().startswith("{"):
            if needed > 1:
                lacking = "label" if self.roles[1] in self.dataset.LABELS else "second text"
                raise DataFault(f"{where}: a line of plain text has no {lacking}", hint=self._written, where=(where,))
            return self.example(Row([line], where, [None for _ in columns.optional]))
        try:
            given = strict_json.parse(line)
        except ValueError as error:
            hint = f"write a text that begins with {{ as JSON: {self._written}"
            raise DataFault(f"{where}: not valid JSON: {error}", hint=hint, where=(where,)) from None
        found = [
            next((key for key in (name, role, self.dataset.ALIASES.get(role)) if key in given), None) for role, name in self.names.items()
        ]
        for key, role in zip(found[:needed], self.roles[:needed], strict=True):
            if key is None:
                raise DataFault(f"{where}: {role!r} is missing", hint=self._written, where=(where,))
        cells: list[Cell] = [None if key is None else given[key] for key in found]
        return self.example(Row(cells[:needed], where, cells[needed:]))

    @property
    def _written(self) -> str:
        """The JSON form of a line."""
        return "write {" + ", ".join(f'"{role}": ...' for role in self.roles[: len(self.columns.names)]) + "}"

    @property
    def names(self) -> dict[str, str]:
        """The file's name of each role's column."""
        return {role: name or role for role, name in zip(self.roles, [*self.columns.names, *self.columns.optional], strict=True)}


class Dataset(kind_settings.DatasetSettings):
    """One kind of data. Required: `example`, `texts`, `encode`, `packing`; everything else has a default."""

    LABELS: ClassVar[frozenset[str]] = frozenset()
    """Roles that are not needed for prediction."""
    ALIASES: ClassVar[Mapping[str, str]] = {}
    """Other names of roles in a line of JSON."""
    LIKELY: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Usual names of the columns of each role, in lower case, used unless `data.fields` is given."""
    KNOWN_BY: ClassVar[str | None] = None
    """Name, in messages, of the key that decides the split; default UNIT."""
    CUTS: ClassVar[str | None] = "end"
    """What a truncated example loses; None = nothing, it makes several rows."""
    ROW: ClassVar[str] = "one example a row"
    """Name of a row in `data show`; {pack} is the recipe's data.pack."""
    KEEPS_EXAMPLES: ClassVar[bool] = True
    """Original examples are stored beside their ids."""

    # Reading

    def find(self, corpus: object, key: str) -> list[Source]:
        """The files of data.train or data.val; DataFault if one is missing or not a table."""
        tables = find(corpus, key)
        for table in tables:
            if table.format == "txt":
                hint = "a pipe has no suffix: save it as a file" if table.name == "stdin" else "its name must have one of these suffixes"
                raise DataFault(f"{key}: {table.name} is not a table (jsonl, csv, tsv, parquet, conll)", hint=hint, where=(table.name,))
        return tables

    def reader(self, data: Data, corpus: object = None, labelled: bool = True, labels: Labels | None = None) -> Reader:
        """The columns; named like their roles unless data.fields says otherwise.

        corpus: what is read, as in a recipe. labels: of a trained run, which says whether there are two texts.
        """
        named = self.named(data, corpus)
        needed = [role for role in self.REQUIRED if labelled or role not in self.LABELS]
        needed += [role for role in self.OPTIONAL if role in named or (role == "text_pair" and labels is not None and labels.n_texts == 2)]
        others = [role for role in self.OPTIONAL if not named and role not in needed]
        return Reader(self, (*needed, *others), self.columns(data, named, needed, others), labelled)

    def columns(self, data: Data, named: Mapping[str, str], needed: Sequence[str], others: Sequence[str] = ()) -> Columns:
        """Columns of the `needed` roles, and of `others` if present; roles that are not `named` have their own names.

        Otherwise usual names are tried, or, in a file without header, the recipe's column numbers.
        """
        names = tuple(named.get(role, role) for role in needed)
        likely = {role: self.LIKELY.get(role, ()) for role in needed if role not in named}
        numbers = {role: str(number) for role, number in data.field_numbers.items() if role not in named}
        return Columns(names, data.header, data.errors, tuple(others), likely, numbers)

    def named(self, data: Data, corpus: object) -> dict[str, str]:
        """The column of each role, where given; built-in corpora have their own names."""
        return dict(data.fields)

    def read(self, files: Sequence[Source], data: Data, corpus: object, labels: Labels | None = None) -> Iterator[Any]:
        """All examples of the files that `find` returned for `corpus`; DataFault at the first invalid row."""
        return raising(example for part in self.parts(files, data, corpus, labels) for example in part)

    def parts(self, files: Sequence[Source], data: Data, corpus: object, labels: Labels | None = None) -> Iterator[Iterator[Any]]:
        """Parts that can be read independently, by default files: their examples, with a DataFault in place of an
        invalid row.

        DataFault is raised if the rest of a part cannot be read.
        """
        return map(self.reader(data, corpus, labels=labels).try_read, files)

    def example(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], labelled: bool) -> Any:
        """The example of a row: cells by role, without roles that the file lacks; DataFault with `where`.

        names: of the columns, by role. labelled False: labels are optional.
        """
        raise NotImplementedError

    def to_json(self, example: Any) -> Any:
        """An example without its location, as JSON."""
        return [*example]

    def of_json(self, given: Any, where: str) -> Any:
        """The inverse."""
        raise NotImplementedError

    def examples(self, store: Store) -> Iterator[Any]:
        """The original examples, in order; locations are counted from 1, since the file may have been renamed."""
        assert store.raw is not None
        with store.raw.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield self.of_json(json.loads(line), f"{self.UNIT.removesuffix('s')} {number}")

    def left_out(self, examples: Sequence[Any]) -> dict[str, int]:
        """What is dropped from examples: messages with {n}, and their counts."""
        return {}

    def classes(self, example: Any) -> Sequence[str]:
        """The classes of an example, all of which the training split must contain; none without classes."""
        return ()

    # Dividing

    def texts(self, example: Any, source: bool = False) -> Sequence[str]:
        """The texts of an example, as encoded; `source`: those of the source."""
        raise NotImplementedError

    def size(self, example: Any) -> int:
        """Characters."""
        return sum(map(len, example.texts))

    def opens(self, example: Any) -> bool:
        """False for a later part of a document."""
        return True

    def known_by(self, example: Any) -> str:
        """The inputs of an example: examples with equal inputs belong to the same split."""
        return "\0".join(self.texts(example))

    def whole(self, example: Any) -> str:
        """The whole content of an example."""
        return json.dumps(self.to_json(example))

    def divide(self, train: Read, val: Read | None, split: Split) -> Division:
        """The split: a share of `train`, or `val` without examples of `train`."""
        if val is not None:
            return keep_apart(train, val, self.known(whole=True))
        return hold_out(train, self.known(whole=False), split.share)

    def known(self, whole: bool) -> Known:
        """The key of examples; whole: their content; else their inputs."""
        by, unit = (self.whole, self.UNIT) if whole else (self.known_by, self.KNOWN_BY or self.UNIT)
        return Known(by, self.size, self.opens, unit, "no text" if self.STREAM else f"no {unit}")

    # Encoding

    def separated(self, data: Data) -> bool:
        """Whether separators stand between examples."""
        return True

    def labels_of(self, examples: Iterable[Any]) -> Labels | None:
        """Labels of the training split; None for plain language modeling."""
        return None

    def read_labels(self, config: Mapping[str, Any]) -> Labels | None:
        """The labels in a run's config.json; ValueError or KeyError if they are invalid."""
        return None

    def encode(self, examples: Sequence[Any], used: Tokenizers, labels: Labels | None) -> list[Encoded]:
        """Ids and labels of examples; DataFault for an unknown label, or a text without tokens."""
        raise NotImplementedError

    # Rows

    def packing(self, store: Store, shape: Shape) -> Packing:
        """The rows of a store."""
        raise NotImplementedError

    # Messages

    def opened(self, text: TokenizedData) -> str:
        """The sizes of both splits, in a line."""
        return f"{text.train.n_documents:,} training {self.UNIT}, {text.val.n_documents:,} validation {self.UNIT}"

    def summary(self, text: TokenizedData) -> Iterator[str]:
        """A few lines about both splits."""
        raise NotImplementedError

    def stats(self, text: TokenizedData, packings: Mapping[str, Packing]) -> tuple[list[str], dict[str, Any]]:
        """Statistics of both splits, whose rows are `packings`: lines of a table, and JSON."""
        raise NotImplementedError

    def shown(self, text: TokenizedData, rows: Rows, batch: Batch, row: int, training: bool) -> dict[str, Any]:
        """One row in words: token and target at each position."""
        raise NotImplementedError

    def table(self, row: Mapping[str, Any], head: str) -> list[str]:
        """`shown` as lines for a terminal; head: the row's title."""
        raise NotImplementedError
