"""A recipe's examples before tokenization: its files, their split, and the tokenizers trained on them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import tokenizers

from mini_tf.data.datasets import Dataset
from mini_tf.data.mixture import split_sources
from mini_tf.data.source_files import Files
from mini_tf.data.split import DataSplit, limit_training
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
from mini_tf.system.progress import adding_up, show_progress

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
        val = self.files["val"].read if "val" in self.files else None
        with show_progress(f"opening {len(files.sources):,} files"):
            return StreamSample(Shards.open(files.sources, columns), self.data.split.share, val)

    @property
    def column_notes(self) -> list[str]:
        """`Files.column_notes` of all files; of a corpus that is streamed, the column of its first file."""
        files = (
            self.files.values()
            if self.sample is None
            else [one for split, one in self.files.items() if split != "train"]
        )
        notes = [note for one in files for note in one.column_notes]
        return (
            notes if self.sample is None else [*notes, *self.sample.shards.notes(self.data.fields.get("text", "text"))]
        )

    @cached_property
    def hash(self) -> str:
        """Hash of the contents of all files, and of the settings that they are read and split with."""
        if self.sample is not None:
            val = self.files["val"].hash if "val" in self.files else str(self.data.split)
            return hash_of({"streaming": self.sample.shards.hash, "errors": self.data.errors, "split": val})
        split = "" if "val" in self.files else str(self.data.split)
        limit = self.data.max_train_samples
        split = f"{split}, stratified" if self.dataset.STRATIFIED and self.data.split.folds is not None else split
        split = split if limit is None else f"{split}, {limit} training examples"
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
        size = sum(files.size for files in self.files.values())
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
        keys = [
            self._tokenizer_key(tokenizer, sources)
            for tokenizer, sources in self._needed(settings)
            if tokenizer.path is None
        ]
        if any(tokenizer.extend is not None for tokenizer, _ in self._needed(settings)):
            return True
        return any(load("tokenizers", key) is None for key in keys)

    def _needed(self, settings: sections.Tokenizer) -> list[tuple[sections.SingleTokenizer, Sequence[bool]]]:
        """Each tokenizer with the texts that it is trained on: True = sources, False = targets or labelled texts."""
        if settings.source is not None:
            return [(settings.source, (True,)), (settings, (False,))]
        return [(settings, (True, False) if self.dataset.SOURCE else (False,))]

    def tokenizers(self, settings: sections.Tokenizer, needs: Sequence[str] = ()) -> Tokenizers:
        """Loaded, or trained on the training split. needs: special tokens to add if missing, by
        `ObjectiveSettings.TOKENS`; a trained one lacks only sentinels.

        """
        n_sentinels = needs.count("sentinel")
        needs = [name for name in needs if name != "sentinel"]
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
        with show_progress(
            f"training the tokenizer on {self.data_split.characters / stride / 1e6:,.1f} million characters{others}"
        ):
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
        return hash_of(
            [TRAINER_VERSION, self.hash, sources, tokenizers.__version__, cache_identity(settings.trainer), used]
        )
