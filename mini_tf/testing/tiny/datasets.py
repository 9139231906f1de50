"""A dataset with rows, files of them, and what is made of them."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mini_tf.data.datasets import Dataset
from mini_tf.data.examples import Labels
from mini_tf.data.packing import Packing, Shape
from mini_tf.data.split import Part, SplitName
from mini_tf.data.store import Store, Tokenizers, open_store
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenized import write_stores
from mini_tf.recipe.data import Data
from mini_tf.recipe.sections import SingleTokenizer

Row = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class DatasetFixture:
    """A dataset, rows, and a folder for files."""

    dataset: Dataset
    rows: Sequence[Row]
    folder: Path

    @classmethod
    @contextmanager
    def temporary(cls, dataset: Dataset, rows: Sequence[Row]) -> "Iterator[DatasetFixture]":
        """With a folder that lasts as long as this context."""
        with TemporaryDirectory() as folder:
            yield cls(dataset, rows, Path(folder))

    def file(self, rows: Iterable[Row], name: str = "rows.jsonl") -> str:
        path = self.folder / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(path)

    def read(self, rows: Iterable[Row], **settings: Any) -> list[Any]:
        """The examples of the rows, with these keys of `data`."""
        return self._read(self.file(rows), settings)

    def read_table(self, rows: Iterable[Sequence[str]], **settings: Any) -> list[Any]:
        """The examples of a csv file of these rows."""
        path = self.folder / "rows.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
        return self._read(str(path), settings)

    def read_unlabelled(self, rows: Iterable[Row]) -> list[Any]:
        """The examples of the rows without their labels, as `predict` reads them."""
        labels = self.dataset.LABELS
        corpus = self.file(
            ({name: cell for name, cell in row.items() if name not in labels} for row in rows), "unlabelled.jsonl"
        )
        reader = self.dataset.reader(Data(train=corpus), corpus, labelled=False, labels=self.labels)
        return list(reader.read(self.dataset.find(corpus, "data.train")))

    def _read(self, corpus: str, settings: Mapping[str, Any]) -> list[Any]:
        data = Data(train=corpus, **settings)
        return list(self.dataset.read(self.dataset.find(corpus, "data.train"), data, corpus))

    @cached_property
    def examples(self) -> list[Any]:
        return self.read(self.rows)

    def known(self, examples: Iterable[Any]) -> list[tuple[str, ...]]:
        """The examples without their locations."""
        return [
            (self.dataset.content_key(example), self.dataset.split_key(example), *self.dataset.texts(example))
            for example in examples
        ]

    @cached_property
    def used(self) -> Tokenizers:
        sides = (True, False) if self.dataset.SOURCE else (False,)
        texts = [text for side in sides for example in self.examples for text in self.dataset.texts(example, side)]
        tokenizer = Tokenizer.train(SingleTokenizer(kind="byte"), texts)
        return Tokenizers(tokenizer, tokenizer)

    @cached_property
    def labels(self) -> Labels | None:
        return self.dataset.fit_labels(iter(self.examples))

    def stores(self, name: str, parts: Sequence[Part[tuple[SplitName, Any]]]) -> dict[str, Store]:
        """The stores of these parts by split, written to a folder of this name and opened."""
        folder = self.folder / name
        folder.mkdir()
        facts = write_stores(folder, self.dataset, parts, self.used, self.labels, True)["stores"]

        def opened(split: str) -> Store:
            of_source = f"{split}.source"
            vocabulary = self.used.source.vocabulary
            source = open_store(folder, of_source, facts[of_source], vocabulary) if of_source in facts else None
            return open_store(folder, split, facts[split], self.used.target.vocabulary, source)

        return {split: opened(split) for split in facts if not split.endswith(".source")}

    @cached_property
    def store(self) -> Store:
        """All examples, written to files and opened."""
        part = Part[tuple[SplitName, Any]](lambda: (("val", example) for example in self.examples))
        return self.stores("store", [part])["val"]

    def packing(self, context: int = 512, lookahead: int = 1, pack: Any = "none") -> Packing:
        return self.dataset.packing(self.store, Shape(context, lookahead, pack))
