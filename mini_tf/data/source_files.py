"""The files of a recipe's data: their examples before tokenization, their hash, and notes on how they are read."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, partial
from typing import Any

from mini_tf.data import split
from mini_tf.data.datasets import Dataset
from mini_tf.data.examples import Labels
from mini_tf.data.formats.columns import missing_column
from mini_tf.data.formats.data_files import DataFile, MissingFile
from mini_tf.data.formats.tables import chosen_columns, column_names, is_json, read_columns, rows_of
from mini_tf.data.formats.text_lines import count_bad_bytes
from mini_tf.data.split import Examples, Part
from mini_tf.parallel.dividing import ALONE, Team
from mini_tf.recipe import sections
from mini_tf.recipe.kinds import cache_identity
from mini_tf.system.cache import hash_of
from mini_tf.system.errors import DataFault
from mini_tf.system.progress import adding_up, show_progress
from mini_tf.system.strict_json import short

SIMILAR = 0.8
"""Similarity of a column's name to that of an optional one (difflib's ratio), from which on it seems misspelt."""


@dataclass(frozen=True, eq=False)
class Files:
    """The files of data.train or data.val. Raises DataFault at first access if a file cannot be read."""

    dataset: Dataset
    data: sections.Data
    corpus: object
    key: str
    labels: Labels | None = None

    @cached_property
    def sources(self) -> Sequence[DataFile]:
        try:
            return self.dataset.find(self.corpus, self.key)
        except MissingFile as fault:
            if self.data.home is not None and self.key.startswith("data."):
                fault.hint = f"{self.data.home}; or {self.key}=... names another file"
            raise

    @property
    def hash(self) -> str:
        """Hash of the contents and of the settings that they are read with; the paths do not matter."""
        reading = self.data.model_dump(mode="json", include={"fields", "field_numbers", "header", "errors"}) | {
            "tail": self.data.split.tail
        }
        size = sum(source.path.stat().st_size for source in self.sources)
        with show_progress(f"hashing {size / 1e6:,.1f} MB") as reached:
            advance = adding_up(reached, size)
            digests = [source.digest(advance) for source in self.sources]
        return hash_of([digests, cache_identity(self.dataset), reading])

    @cached_property
    def size(self) -> int:
        """Bytes of all files, unpacked."""
        return sum(source.size for source in self.sources)

    def examples(self, team: Team = ALONE, advance: Callable[[int], None] = lambda n_bytes: None) -> Examples:
        """All examples, in parts of consecutive files of at least `parts.SIZE` bytes.

        team: the processes that read. advance: called with about the bytes that were read.
        """
        parts, files, size = list[Part[Any]](), list[DataFile](), 0
        groups = self.dataset.groups(self.sources, self.data, self.corpus)
        for number, group in enumerate(groups, 1):
            files += group
            size += sum(file.path.stat().st_size for file in group)
            if size >= split.SIZE or number == len(groups):
                parts.append(Part(partial(self._read, files, advance), size))
                files, size = [], 0
        return Examples(parts, team, self.no_examples)

    def _read(self, files: Sequence[DataFile], advance: Callable[[int], None]) -> Iterator[Any]:
        """The examples of files. advance: as for `examples`, by their characters."""
        size, done, n_characters = sum(file.size for file in files), 0, 0
        for n, example in enumerate(self.dataset.read(files, self.data, self.corpus, self.labels)):
            n_characters += self.dataset.size(example)
            if n % 256 == 0:
                advance(min(n_characters, size) - done)
                done = min(n_characters, size)
            yield example
        advance(size - done)

    def read(self) -> Iterator[Any]:
        """All examples in order; DataFault at the first invalid one, or if there is none."""
        return self.examples().read()

    def no_examples(self) -> DataFault:
        """The fault of files without any example."""
        names = [source.name for source in self.sources]
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        empty = not any(source.path.stat().st_size for source in self.sources)
        tables = all(source.format in ("csv", "tsv") for source in self.sources)
        why = (
            " (an empty file)"
            if empty and len(names) == 1
            else " (nothing but a header)"
            if tables and not empty
            else ""
        )
        unit = "text" if self.dataset.STREAM else self.dataset.UNIT
        return DataFault(f"{self.key}: no {unit} in {listed}{why}", hint=f"name a file with {unit}", where=tuple(names))

    @property
    def column_notes(self) -> Iterator[str]:
        """Columns that are read although data.fields does not name them, and others that may be a part of the text.

        The notes contain paths, so they must not be cached by content.
        """
        reader = self.dataset.reader(self.data, self.corpus, labels=self.labels)
        for source in self.sources:
            if chosen := chosen_columns(source, reader.columns, reader.names):
                yield f"{chosen}; data.fields selects others"
            read = {*read_columns(source, reader.columns), *reader.names.values()}
            names = column_names(source, reader.columns) if self.dataset.FURTHER_TEXTS else ()
            absent = {*reader.columns.optional}.difference(names)
            for name in (name for name in names if name not in read):
                what, common_name = f"{source.name}: the column {short(name)!r} is not read", name.strip().lower()
                if common_name in self.dataset.FURTHER_TEXTS:
                    yield f"{what}, though it may be a part of the input"
                elif near := get_close_matches(common_name, absent, n=1, cutoff=SIMILAR):
                    yield f"{what}; did you mean {near[0]!r}?"
            if source.format == "txt" and is_json(source):
                yield (
                    f"{source.name}: it is JSON, which is read as plain text; as lines of JSON in a .jsonl file a"
                    " column is read"
                )

    @property
    def notes(self) -> Iterator[str]:
        """The number of bytes read as U+FFFD."""
        texts = [source for source in self.sources if source.format != "parquet"]  # strings of parquet are always UTF-8
        if self.data.errors == "replace" and (n := sum(count_bad_bytes(source.path, source.name) for source in texts)):
            yield f"{n:,} bytes are not UTF-8; they are replaced by U+FFFD"

    def has(self, role: str) -> bool:
        """Whether a row has the column of an optional role."""
        reader = self.dataset.reader(self.data, self.corpus, labels=self.labels)
        number = reader.roles.index(role) - len(reader.columns.names)
        rows = (row for source in self.sources for row in rows_of(source, reader.columns))
        return number < 0 or any(row.optional[number] is not None for row in rows)


def refuse_absent(files: Sequence[Files], roles: Collection[str]) -> None:
    """DataFault if the column that data.fields names for one of the optional `roles` is in no row of any file."""
    first = files[0]
    for role, name in first.data.fields.items():
        if role in roles and role in first.dataset.OPTIONAL and not any(one.has(role) for one in files):
            reader, file = first.dataset.reader(first.data, first.corpus, labels=first.labels), first.sources[0]
            names = [*reader.names.values()]
            raise missing_column(file.name, name, column_names(file, reader.columns), names, first.key)
