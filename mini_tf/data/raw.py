"""A recipe's examples before they are ids: its files and how they are divided, and the tokenizers that are learnt from them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import tokenizers

from mini_tf.data.datasets import Dataset
from mini_tf.data.formats.lines import bad_bytes
from mini_tf.data.formats.sources import MissingFile, Source
from mini_tf.data.formats.tables import read_columns
from mini_tf.data.labels import Labels
from mini_tf.data.split import Division
from mini_tf.data.store import Tokenizers
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe import sections
from mini_tf.recipe.kinds import as_cached
from mini_tf.system.cache import build_or_load, hash_of
from mini_tf.system.interruptible import interruptible_call
from mini_tf.system.progress import show_progress
from mini_tf.system.strict_json import short

TRAINERS = 2
"""Counts up where a kind of tokenizer learns another one from the same text."""
LARGEST_SAMPLE = 16 << 20
"""Characters a tokenizer that chooses its tokens is trained on at most, evenly spread over the text."""


@dataclass(frozen=True, eq=False)
class Files:
    """What data.train or data.val names, as a dataset reads it; DataFault where a file cannot be read, when it is first asked for."""

    dataset: Dataset
    data: sections.Data
    corpus: object
    key: str
    labels: Labels | None = None

    @cached_property
    def sources(self) -> Sequence[Source]:
        try:
            return self.dataset.find(self.corpus, self.key)
        except MissingFile as fault:
            if self.data.home is not None and self.key.startswith("data."):
                fault.hint = f"{self.data.home}; or {self.key}=... names yours"
            raise

    @property
    def hash(self) -> str:
        """Of the contents, and of how they are read."""
        reading = self.data.model_dump(mode="json", include={"fields", "field_numbers", "header", "errors"}) | {
            "tail": self.data.split.tail
        }
        return hash_of([[source.digest() for source in self.sources], as_cached(self.dataset), reading])

    def read(self) -> Iterator[Any]:
        """All examples, one after another; DataFault at the first that is none."""
        return self.dataset.read(self.sources, self.data, self.corpus, self.labels)

    @property
    def notes(self) -> Iterator[str]:
        """Where bytes are read as U+FFFD, and which columns were taken though nobody named them."""
        reader = self.dataset.reader(self.data, self.corpus, labels=self.labels)
        for source in self.sources:
            found = read_columns(source, reader.columns)
            told = [f"{role} = {short(name)!r}" for role, name in zip(reader.roles, found, strict=False) if name != reader.names[role]]
            if told:
                yield f"{source.name}: columns read: {', '.join(told)}; data.fields selects others"
        texts = [source for source in self.sources if source.format != "parquet"]  # which knows no such bytes
        if self.data.errors == "replace" and (n := sum(bad_bytes(source.path, source.name) for source in texts)):
            yield f"{n:,} bytes are not UTF-8; each is read as U+FFFD"


@dataclass(frozen=True, eq=False)
class RawData:
    """The examples of a recipe before they are ids."""

    dataset: Dataset
    data: sections.Data

    @cached_property
    def files(self) -> dict[str, Files]:
        sides = {"train": self.data.train, "val": self.data.val}
        return {side: Files(self.dataset, self.data, corpus, f"data.{side}") for side, corpus in sides.items() if corpus is not None}

    @cached_property
    def hash(self) -> str:
        """Of the contents of all files, and of how they are read and divided."""
        split = "" if "val" in self.files else str(self.data.split)
        known = {side: files.hash for side, files in self.files.items()}
        return hash_of({"split": split, **known})

    @property
    def _size(self) -> int:
        """Bytes of all files."""
        return sum(source.path.stat().st_size for files in self.files.values() for source in files.sources)

    @cached_property
    def division(self) -> Division:
        """Which examples are held out."""
        val = self.files["val"].read if "val" in self.files else None
        with show_progress(f"reading {self._size / 1e6:,.1f} MB"):
            division = self.dataset.divide(self.files["train"].read, val, self.data.split)
            notes = dict.fromkeys(note for files in self.files.values() for note in files.notes)
        return replace(division, notes=(*division.notes, *notes))

    def tokenizers(self, settings: sections.Tokenizer, needs: Iterable[str] = ()) -> Tokenizers:
        """Loaded, or learnt from the training side. needs: special tokens that a loaded one is given where it lacks them."""
        needs = [*needs, *(["separator"] if self.dataset.separated(self.data) else [])]
        one = partial(self._tokenizer, needs=needs)
        if settings.source is not None:
            return Tokenizers(one(settings.source, (True,)), one(settings, (False,)))
        shared = one(settings, (True, False) if self.dataset.SOURCE else (False,))
        return Tokenizers(shared, shared)

    def _tokenizer(self, settings: sections.SideTokenizer, sides: Sequence[bool], needs: Sequence[str]) -> Tokenizer:
        """sides: whether it is learnt from sources, from what is labelled or predicted, or both."""
        if settings.path is not None:
            used = Tokenizer.load(settings.path)
            for name in needs:
                used = used.with_special(name)
            return used
        size = settings.vocab_size if settings.chooses_size else 0
        key = hash_of([TRAINERS, self.hash, sides, tokenizers.__version__, as_cached(settings.trainer), size])

        def build(folder: Path) -> dict[str, Any]:
            # One side after the other: of a huge text every n-th is learnt from, which must not be the sources alone.
            learnt = ((side, example) for side in sides for where, example in self.division.read() if where == "train")
            texts = (text for side, example in learnt for text in self.dataset.texts(example, side))
            stride = 1 + self.division.characters // LARGEST_SAMPLE if settings.chooses_size else 1
            sample = (text for n, text in enumerate(texts) if n % stride == 0)
            with show_progress(f"training the tokenizer on {self.division.characters / stride / 1e6:,.1f} million characters"):
                interruptible_call(lambda: Tokenizer.train(settings, sample)).save(folder / "tokenizer.json")
            return {}

        return Tokenizer.load(build_or_load("tokenizers", key, build, lambda line: None).folder)
