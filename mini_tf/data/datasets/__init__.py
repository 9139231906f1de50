"""Datasets: what a row of data is. How it is read, divided, encoded, cut into rows, and shown.

The contract stands here; every other file of this package is one dataset, whose name an objective says (`DATASET`). Its `Settings`
are what the objective passes on (`ObjectiveSettings.dataset`); examples are of whatever type it likes.
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
from mini_tf.system.errors import DataFault, raise_first_fault


@dataclass(frozen=True)
class TokenizedData:
    """What a recipe's data and tokenizer come to. hashes: `data` (the ids), `tokenizer`, and `source_tokenizer` where that is another."""

    train: Store
    val: Store
    used: Tokenizers
    notes: list[str]
    hashes: dict[str, str]
    labels: Labels | None = None

    @property
    def tokenizer(self) -> Any:
        """Of the targets, or of whatever is labelled."""
        return self.used.target

    @property
    def source_tokenizer(self) -> Any:
        """The same as `tokenizer` where there is one vocabulary."""
        return self.used.source

    @property
    def sides(self) -> dict[str, Store]:
        return {"train": self.train, "val": self.val}


TEXTS = ("sentence", "sentence1", "review", "content", "body", "comment", "question", "message", "tweet", "document", "article", "post")
"""What a column of texts is often called."""


@dataclass(frozen=True)
class Reader:
    """How the rows of tables become examples. roles: what the columns hold, first `columns.names`, then `columns.optional`."""

    dataset: "Dataset"
    roles: tuple[str, ...]
    columns: Columns
    labelled: bool = True
    """Whether labels must be there."""

    def read(self, files: Iterable[Source]) -> Iterator[Any]:
        """All examples of tables, one after another; DataFault at the first row that is none."""
        return raise_first_fault(example for file in files for example in self.try_read(file))

    def try_read(self, file: Source) -> Iterator[Any]:
        """All examples of a table, one after another; in the place of a row that is none a DataFault."""
        for row in try_rows(file, self.columns):
            try:
                [row] = raise_first_fault([row])
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
        """The example of a line: a text, or an object of JSON, told by its first character; DataFault where it is neither.

        In JSON a text is called as its column is, or by its role (text, text_pair), or by another name that the dataset gives it.
        """
        columns, needed = self.columns, len(self.columns.names)
        if not line.lstrip().startswith("{"):
            if needed > 1:
                lacking = "label to be judged by" if self.roles[1] in self.dataset.LABELS else "second text"
                raise DataFault(f"{where}: a line of plain text has no {lacking}", hint=self._written, where=(where,))
            return self.example(Row([line], where, [None for _ in columns.optional]))
        try:
            given = strict_json.parse(line)
        except ValueError as error:
            hint = f"a text that begins with {{ is written in JSON too: {self._written}"
            raise DataFault(f"{where}: not valid JSON: {error}", hint=hint, where=(where,)) from None
        found = [
            next((key for key in (name, role, self.dataset.ALIASES.get(role)) if key in given), None) for role, name in self.names.items()
        ]
        for key, role in zip(found[:needed], self.roles[:needed], strict=True):
            if key is None:
                raise DataFault(f"{where}: there is no {role!r}", hint=self._written, where=(where,))
        cells: list[Cell] = [None if key is None else given[key] for key in found]
        return self.example(Row(cells[:needed], where, cells[needed:]))

    @property
    def _written(self) -> str:
        """How a line of JSON is written."""
        return "write {" + ", ".join(f'"{role}": ...' for role in self.roles[: len(self.columns.names)]) + "}"

    @property
    def names(self) -> dict[str, str]:
        """What the file calls each role's column."""
        return {role: name or role for role, name in zip(self.roles, [*self.columns.names, *self.columns.optional], strict=True)}


class Dataset(kind_settings.DatasetSettings):
    """One kind of data. What must be written: `example`, `texts`, `encode`, `packing`; all else has a default."""

    LABELS: ClassVar[frozenset[str]] = frozenset()
    """Columns that texts to be predicted need not have."""
    ALIASES: ClassVar[Mapping[str, str]] = {}
    """What roles may be called too, in a line of JSON."""
    LIKELY: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """What the column of a role is often called in files, in small letters; read where `data.fields` says nothing else."""
    KNOWN_BY: ClassVar[str | None] = None
    """How messages call what decides the side of a split; default UNIT."""
    CUTS: ClassVar[str | None] = "end"
    """What an example that is longer than the context loses; None = nothing, it makes several rows."""
    ROW: ClassVar[str] = "one example a row"
    """What `data show` calls a row; {pack} is the recipe's data.pack."""
    KEEPS_EXAMPLES: ClassVar[bool] = True
    """The examples as they were written are kept beside their ids."""

    # Reading

    def find(self, corpus: object, key: str) -> list[Source]:
        """The files behind data.train or data.val; DataFault where one is missing, or no table."""
        tables = find(corpus, key)
        for table in tables:
            if table.format == "txt":
                hint = "a pipe has no name to tell by: save it as a file" if table.name == "stdin" else "its name must end in one of these"
                raise DataFault(f"{key}: {table.name} is no table (jsonl, csv, tsv, parquet, conll)", hint=hint, where=(table.name,))
        return tables

    def reader(self, data: Data, corpus: object = None, labelled: bool = True, labels: Labels | None = None) -> Reader:
        """The columns are called by their roles unless data.fields says otherwise.

        corpus: what is read, as a recipe writes it. labels: of a trained run, which says whether there are two texts.
        """
        named = self.named(data, corpus)
        needed = [role for role in self.REQUIRED if labelled or role not in self.LABELS]
        needed += [role for role in self.OPTIONAL if role in named or (role == "text_pair" and labels is not None and labels.n_texts == 2)]
        others = [role for role in self.OPTIONAL if not named and role not in needed]
        return Reader(self, (*needed, *others), self.columns(data, named, needed, others), labelled)

    def columns(self, data: Data, named: Mapping[str, str], needed: Sequence[str], others: Sequence[str] = ()) -> Columns:
        """Those of the roles that are `needed`, and of `others` where there are such; what is not `named` is called as its role is.

        Where it is not, it is called as such columns often are, or, in a file without names, known by the number that a recipe gave.
        """
        names = tuple(named.get(role, role) for role in needed)
        likely = {role: self.LIKELY.get(role, ()) for role in needed if role not in named}
        numbers = {role: str(number) for role, number in data.field_numbers.items() if role not in named}
        return Columns(names, data.header, data.errors, tuple(others), likely, numbers)

    def named(self, data: Data, corpus: object) -> dict[str, str]:
        """Which column holds each role, where that is said; corpora that come along have names of their own."""
        return dict(data.fields)

    def read(self, files: Sequence[Source], data: Data, corpus: object, labels: Labels | None = None) -> Iterator[Any]:
        """All examples of the files that `find` gave for `corpus`; DataFault at the first row that is none."""
        return raise_first_fault(example for part in self.parts(files, data, corpus, labels) for example in part)

    def parts(self, files: Sequence[Source], data: Data, corpus: object, labels: Labels | None = None) -> Iterator[Iterator[Any]]:
        """What can be read without the rest, by default each file: its examples, and in the place of a row that is none a DataFault.

        DataFault is raised where nothing more of a part can be read.
        """
        return map(self.reader(data, corpus, labels=labels).try_read, files)

    def example(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], labelled: bool) -> Any:
        """The example of a row: its cells by role, without those that the file has no column for; DataFault with `where`.

        names: of the columns, by role. labelled False: labels need not be there.
        """
        raise NotImplementedError

    def to_json(self, example: Any) -> Any:
        """An example without its place, as JSON keeps it."""
        return [*example]

    def of_json(self, given: Any, where: str) -> Any:
        """The inverse."""
        raise NotImplementedError

    def examples(self, store: Store) -> Iterator[Any]:
        """The examples as they were written, in order; counted from 1, since the file that they came from may have another name by now."""
        assert store.raw is not None
        with store.raw.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield self.of_json(json.loads(line), f"{self.UNIT.removesuffix('s')} {number}")

    def left_out(self, examples: Sequence[Any]) -> dict[str, int]:
        """What of examples is not learnt: sentences and how many, which is put in place of {n}."""
        return {}

    def classes(self, example: Any) -> Sequence[str]:
        """The classes that an example names, of which the training side must have all; none where there are no classes."""
        return ()

    # Dividing

    def texts(self, example: Any, source: bool = False) -> Sequence[str]:
        """The texts as they are encoded; `source`: those of the source side."""
        raise NotImplementedError

    def size(self, example: Any) -> int:
        """Characters."""
        return sum(map(len, example.texts))

    def opens(self, example: Any) -> bool:
        """False for a later part of an example that comes in parts."""
        return True

    def known_by(self, example: Any) -> str:
        """What is given when the answer is predicted: examples that agree in it belong on one side of a split."""
        return "\0".join(self.texts(example))

    def whole(self, example: Any) -> str:
        """What an example is known again by."""
        return json.dumps(self.to_json(example))

    def divide(self, train: Read, val: Read | None, split: Split) -> Division:
        """Which examples are held out: a share of `train`, or `val` without what stands in `train` too."""
        if val is not None:
            return keep_apart(train, val, self.known(whole=True))
        return hold_out(train, self.known(whole=False), split.share)

    def known(self, whole: bool) -> Known:
        """What examples are recognized by: whole: all that is written; otherwise what decides their side."""
        by, unit = (self.whole, self.UNIT) if whole else (self.known_by, self.KNOWN_BY or self.UNIT)
        return Known(by, self.size, self.opens, unit, "there is no text" if self.STREAM else f"there are no {unit}")

    # Encoding

    def separated(self, data: Data) -> bool:
        """Whether separators stand between examples."""
        return True

    def labels_of(self, examples: Iterable[Any]) -> Labels | None:
        """What there is to predict, from the training side; None where nothing is kept with the model, and nothing is predicted but ids."""
        return None

    def read_labels(self, config: Mapping[str, Any]) -> Labels | None:
        """The labels that a run has kept in its config.json; ValueError or KeyError where they are none of such a run."""
        return None

    def encode(self, examples: Sequence[Any], used: Tokenizers, labels: Labels | None) -> list[Encoded]:
        """Ids and labels of examples; DataFault where a label is not among the known ones, or the tokenizer leaves nothing of a text."""
        raise NotImplementedError

    # Rows

    def packing(self, store: Store, shape: Shape) -> Packing:
        """The rows of a store."""
        raise NotImplementedError

    # What people are told

    def opened(self, text: TokenizedData) -> str:
        """The sizes of both sides, in a line."""
        return f"{text.train.n_documents:,} training {self.UNIT}, {text.val.n_documents:,} validation {self.UNIT}"

    def summary(self, text: TokenizedData) -> Iterator[str]:
        """A few lines about both sides."""
        raise NotImplementedError

    def stats(self, text: TokenizedData, packings: Mapping[str, Packing]) -> tuple[list[str], dict[str, Any]]:
        """What there is in both sides, whose rows are `packings`: as the lines of a table and as JSON says it."""
        raise NotImplementedError

    def shown(self, text: TokenizedData, rows: Rows, batch: Batch, row: int, training: bool) -> dict[str, Any]:
        """One row in words: for each place what is read there, and what is predicted."""
        raise NotImplementedError

    def table(self, row: Mapping[str, Any], head: str) -> list[str]:
        """What `shown` gave as lines for a terminal; head: which row it is."""
        raise NotImplementedError
