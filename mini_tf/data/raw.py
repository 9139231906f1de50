"""A recipe's examples before tokenization: their files, their split, and the tokenizers trained on them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import tokenizers

from mini_tf.data import split
from mini_tf.data.datasets import Dataset, Reader
from mini_tf.data.examples import Labels
from mini_tf.data.formats.columns import fields_setting, missing_column
from mini_tf.data.formats.data_files import DataFile, MissingFile
from mini_tf.data.formats.tables import chosen_columns, column_names, is_json, read_columns, rows_of, unread_notes
from mini_tf.data.formats.text_lines import count_bad_bytes
from mini_tf.data.mixture import split_sources
from mini_tf.data.split import DataSplit, Examples, Part, limit_training
from mini_tf.data.store import Tokenizers
from mini_tf.data.streamed_text import Shards, StreamSample
from mini_tf.data.tokenization.extension import extend
from mini_tf.data.tokenization.guard import interruptible_call
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import Roles
from mini_tf.parallel.dividing import ALONE, Team
from mini_tf.recipe import sections
from mini_tf.recipe.corpora import is_mixture, names_in, sources_of
from mini_tf.recipe.kinds import cache_identity
from mini_tf.system.cache import build_or_load, hash_of, load
from mini_tf.system.errors import DataFault
from mini_tf.system.progress import adding_up, show_progress


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
    def reader(self) -> Reader:
        return self.dataset.reader(self.data, self.corpus, labels=self.labels)

    @property
    def hash(self) -> str:
        """Hash of the contents and of the settings that they are read with; the paths do not matter."""
        reading = self.data.model_dump(mode="json", include={"fields", "field_numbers", "header", "errors"})
        reading["tail"] = self.data.split.tail
        size = sum(source.path.stat().st_size for source in self.sources)
        with show_progress(f"hashing {size / 1e6:,.1f} MB") as reached:
            advance = adding_up(reached, size)
            digests = [source.digest(advance) for source in self.sources]
        return hash_of([digests, cache_identity(self.dataset), reading])

    def examples(self, team: Team = ALONE, advance: Callable[[int], None] = lambda n_bytes: None) -> Examples:
        """All examples, in parts of consecutive files of at least `split.SIZE` bytes.

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

    def no_examples(self) -> DataFault:
        """The fault of files without any example."""
        names = [source.name for source in self.sources]
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        empty = not any(source.path.stat().st_size for source in self.sources)
        tables = all(source.format in ("csv", "tsv") for source in self.sources)
        why = " (an empty file)" if empty and len(names) == 1 else ""
        why = " (nothing but a header)" if tables and not empty else why
        unit = "text" if self.dataset.STREAM else self.dataset.UNIT
        return DataFault(f"{self.key}: no {unit} in {listed}{why}", hint=f"name a file with {unit}", where=tuple(names))

    @property
    def column_notes(self) -> Iterator[str]:
        """Columns that are read although data.fields does not name them, and others that may be a part of the text.

        The notes contain paths, so they must not be cached by content.
        """
        reader = self.reader
        for source in self.sources:
            if chosen := chosen_columns(source, reader.columns, reader.names):
                yield f"{chosen}; {fields_setting(self.key)} selects others"
            read = {*read_columns(source, reader.columns), *reader.names.values()}
            yield from unread_notes(source, reader.columns, read, self.dataset.FURTHER_TEXTS, self.dataset.STREAM)
            if source.format == "txt" and is_json(source):
                note = "it is JSON, which is read as plain text; as lines of JSON in a .jsonl file a column is read"
                yield f"{source.name}: {note}"

    @property
    def notes(self) -> Iterator[str]:
        """The number of bytes read as U+FFFD."""
        texts = [source for source in self.sources if source.format != "parquet"]  # strings of parquet are always UTF-8
        if self.data.errors == "replace" and (n := sum(count_bad_bytes(source.path, source.name) for source in texts)):
            yield f"{n:,} bytes are not UTF-8; they are replaced by U+FFFD"

    def has(self, role: str) -> bool:
        """Whether a row has the column of an optional role."""
        reader = self.reader
        number = reader.roles.index(role) - len(reader.columns.names)
        rows = (row for source in self.sources for row in rows_of(source, reader.columns))
        return number < 0 or any(row.optional[number] is not None for row in rows)


def refuse_absent(files: Sequence[Files], roles: Collection[str]) -> None:
    """DataFault if the column that data.fields names for one of the optional `roles` is in no row of any file."""
    first = files[0]
    for role, name in first.data.fields.items():
        if role in roles and role in first.dataset.OPTIONAL and not any(each.has(role) for each in files):
            names, file = [*first.reader.names.values()], first.sources[0]
            raise missing_column(file.name, name, column_names(file, first.reader.columns), names, first.key)


TRAINER_VERSION = 2
"""Increase it if a kind of tokenizer yields another tokenizer from the same text."""
MAX_TRAINING_CHARACTERS = 16 << 20
"""A tokenizer with a `vocab_size` is trained on an even sample of the training data of about this size at most."""


@dataclass(frozen=True, eq=False)
class RawData:
    """The examples of a recipe before tokenization. team: processes that read them together (`data_split`)."""

    dataset: Dataset
    data: sections.Data
    team: Team = ALONE

    @cached_property
    def files(self) -> dict[str, Files]:
        corpora = {"train": self.data.train, "val": self.data.val}
        return {
            split: Files(self.dataset, self.data, names_in(corpus), f"data.{split}")
            for split, corpus in corpora.items()
            if corpus is not None
        }

    @cached_property
    def sources(self) -> dict[str, list[Files]]:
        """The files of each source of a mixture, by split; empty for other data."""
        return {
            split: [replace(files, corpus=source.path) for source in sources_of(getattr(self.data, split))]
            for split, files in self.files.items()
            if is_mixture(getattr(self.data, split))
        }

    @cached_property
    def sample(self) -> StreamSample | None:
        """The sample that is encoded of a corpus that is streamed."""
        if not self.data.streaming:
            return None
        files, columns = self.files["train"], self.dataset.reader(self.data, self.data.train).columns
        val = self.files["val"].examples().read if "val" in self.files else None
        with show_progress(f"opening {len(files.sources):,} files"):
            return StreamSample(Shards.open(files.sources, columns), self.data.split.share, val)

    @property
    def column_notes(self) -> list[str]:
        """`Files.column_notes` of all files; of a corpus that is streamed, the column of its first file."""
        if self.sample is None:
            return [note for files in self.files.values() for note in files.column_notes]
        notes = self.sample.shards.notes(self.data.fields.get("text", "text"))
        return [*(self.files["val"].column_notes if "val" in self.files else ()), *notes]

    @cached_property
    def hash(self) -> str:
        """Hash of the contents of all files, and of the settings that they are read and split with."""
        if self.sample is not None:
            val = self.files["val"].hash if "val" in self.files else str(self.data.split)
            return hash_of({"streaming": self.sample.shards.hash, "errors": self.data.errors, "split": val})
        split = "" if "val" in self.files else str(self.data.split)
        split += ", stratified" if self.dataset.STRATIFIED and self.data.split.folds is not None else ""
        limit = self.data.max_train_samples
        split += "" if limit is None else f", {limit} training examples"
        hashes: dict[str, Any] = {name: files.hash for name, files in self.files.items()}
        hashes |= {name: [files.hash for files in sources] for name, sources in self.sources.items()}
        return hash_of({"split": split, **hashes})

    @cached_property
    def data_split(self) -> DataSplit:
        """Of several processes all need it at the same time: each reads a part of the files."""
        alone = self.team.group.independently
        if self.sample is not None:
            with show_progress("reading a sample of the data"), alone():
                return self.sample.split()
        size = sum(source.size for files in self.files.values() for source in files.sources)
        with show_progress(f"reading {size / 1e6:,.1f} MB") as reached:
            advance = adding_up(reached, self.team.average(size))
            examples = {
                split: [of_source.examples(self.team, advance) for of_source in self.sources.get(split, [files])]
                for split, files in self.files.items()
            }
            labels, folds = [source.label for source in sources_of(self.data.train)], self.data.split.folds is not None
            split_of, hasher = partial(self.dataset.split, split=self.data.split), self.dataset.hasher(content=False)
            data_split = split_sources(split_of, hasher, examples["train"], examples.get("val"), labels, folds)
            with alone():
                if (limit := self.data.max_train_samples) is not None:
                    data_split = limit_training(data_split, hasher, limit)
                notes = dict.fromkeys(note for files in self.files.values() for note in files.notes)
        return replace(data_split, notes=(*data_split.notes, *notes))

    def trains_tokenizers(self, settings: sections.Tokenizer) -> bool:
        """Whether `tokenizers` has to read the training split: one is to be trained that is not in the cache."""
        needed = self._needed(settings)
        if any(tokenizer.extend is not None for tokenizer, _ in needed):
            return True
        keys = (self._tokenizer_key(tokenizer, sources) for tokenizer, sources in needed if tokenizer.path is None)
        return any(load("tokenizers", key) is None for key in keys)

    def _needed(self, settings: sections.Tokenizer) -> list[tuple[sections.SingleTokenizer, Sequence[bool]]]:
        """Each tokenizer with the texts that it is trained on: True = sources, False = targets or labelled texts."""
        if settings.source is not None:
            return [(settings.source, (True,)), (settings, (False,))]
        return [(settings, (True, False) if self.dataset.SOURCE else (False,))]

    def tokenizers(self, settings: sections.Tokenizer, needs: Sequence[str] = ()) -> Tokenizers:
        """Loaded, or trained on the training split. needs: special tokens (`ObjectiveSettings.TOKENS`)."""
        n_sentinels, needs = needs.count("sentinel"), [name for name in needs if name != "sentinel"]
        needs += ["separator"] if self.dataset.separated(self.data) else []
        loaded = [
            self._tokenizer(tokenizer, sources, needs).with_sentinels(n_sentinels, trained=tokenizer.path is None)
            for tokenizer, sources in self._needed(settings)
        ]
        return Tokenizers(loaded[0], loaded[-1])

    def _tokenizer(
        self, settings: sections.SingleTokenizer, sources: Sequence[bool], needs: Sequence[str]
    ) -> Tokenizer:
        if settings.path is not None:
            tokenizer = Tokenizer.load(settings.path, Roles.of(settings))
            for name in needs:
                tokenizer = tokenizer.with_special(name)
            return tokenizer if settings.extend is None else self._extended(tokenizer, settings, sources)

        def build(folder: Path) -> dict[str, Any]:
            with self._training_texts(sources, settings.uses_vocab_size) as sample:
                interruptible_call(lambda: Tokenizer.train(settings, sample)).save(folder / "tokenizer.json")
            return {}

        return Tokenizer.load(build_or_load("tokenizers", self._tokenizer_key(settings, sources), build).folder)

    @contextmanager
    def _training_texts(self, sources: Sequence[bool], sampled: bool) -> Iterator[Iterator[str]]:
        """The texts of the training split that a tokenizer is trained on, or an even sample of them."""
        # All sources, then all targets: in alternating order a stride of 2 would take the sources only.
        examples = ((source, example) for source in sources for example in self.data_split.examples("train"))
        texts = (text for source, example in examples for text in self.dataset.texts(example, source))
        stride = 1 + self.data_split.characters // MAX_TRAINING_CHARACTERS if sampled else 1
        others = self.team.group.several("; the other processes wait")
        size = self.data_split.characters / stride / 1e6
        with show_progress(f"training the tokenizer on {size:,.1f} million characters{others}"):
            yield (text for n, text in enumerate(texts) if n % stride == 0)

    def _extended(self, tokenizer: Tokenizer, settings: sections.SingleTokenizer, sources: Sequence[bool]) -> Tokenizer:
        """The tokenizer with the further tokens of tokenizer.extend, from the training split."""

        def build(folder: Path) -> dict[str, Any]:
            with self._training_texts(sources, sampled=True) as sample:
                inner = tokenizers.Tokenizer.from_str(tokenizer.to_json())
                extended = interruptible_call(lambda: extend(inner, settings.extend or 0, sample))
            (folder / "tokenizer.json").write_text(extended.to_str(), encoding="utf-8")
            return {}

        key = hash_of(["extend", tokenizer.hash, settings.extend, self.hash, sources, tokenizers.__version__])
        extended = Tokenizer.load(build_or_load("tokenizers", key, build).folder, Roles.of(settings))
        size, added = tokenizer.vocabulary.size, extended.vocabulary.size - tokenizer.vocabulary.size
        extended.notes = [*tokenizer.notes, f"tokenizer.extend: {added:,} tokens were added, from id {size} on"]
        return extended

    def _tokenizer_key(self, settings: sections.SingleTokenizer, sources: Sequence[bool]) -> str:
        """Every setting is part of it, except those that training does not use."""
        unused = {"path", *sections.ROLES, "source", *([] if settings.uses_vocab_size else ["vocab_size"])}
        used = settings.model_dump(mode="json", exclude=unused)
        trainer = cache_identity(settings.trainer)
        return hash_of([TRAINER_VERSION, self.hash, sources, tokenizers.__version__, trainer, used])
