"""Validation of a recipe's data files: reads every row and collects all faults, not only the first."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from mini_tf.data.datasets import Dataset
from mini_tf.data.formats.text_lines import undecodable_lines
from mini_tf.data.labels import unknown_label
from mini_tf.data.packing import Packing
from mini_tf.data.parts import Examples
from mini_tf.data.raw import Files, RawData
from mini_tf.data.split import DataSplit
from mini_tf.recipe.data import Data
from mini_tf.system.errors import DataFault


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
    readable = {split: one for split, one in files.items() if _exists(one, faults)}
    for one in readable.values():
        if not sum(1 for _ in _valid_examples(one, faults)) and not faults.count:
            faults.add(one.no_examples())
            return DataReport(faults, {}, 0)
    if len(readable) < len(files):
        return DataReport(faults, {}, 0)
    ignored, sample = Faults(0), None if faults.count else raw.sample
    examples = {split: Examples.of(partial(_valid_examples, one, ignored)) for split, one in readable.items()}
    try:
        data_split = (
            dataset.split(examples["train"], examples.get("val"), data.split) if sample is None else sample.whole(examples["train"])
        )
        labels = dataset.fit_labels(example for split, example in data_split.read() if split == "train")
        reports = _split_reports(dataset, data_split)
    except DataFault as fault:  # if most rows are invalid, too few are left; their faults are reported already
        if not faults.count:
            faults.add(fault)
        return DataReport(faults, {}, 0)
    _add_unknown_classes(dataset, data_split, reports, () if labels is None else labels.names, faults)
    n_val_in_train = _count(dataset, examples["val"].read()) - reports["val"].examples if "val" in examples else 0
    return DataReport(faults, reports, n_val_in_train)


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


def _count(dataset: Dataset, examples: Iterable[Any]) -> int:
    return sum(map(dataset.is_first_part, examples))


def _split_reports(dataset: Dataset, data_split: DataSplit) -> dict[str, SplitReport]:
    reports = {}
    for name in ("train", "val"):
        hashes, characters = dataset.hasher(content=True).scan(example for split, example in data_split.read() if split == name)
        classes = Counter(label for split, example in data_split.read() if split == name for label in dataset.classes(example))
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
        faults.add(unknown_label(name, known, where, times=sum(one.classes[name] for one in reports.values())))


def length_report(packing: Packing) -> dict[str, int]:
    """Tokens of the longest example (of source or target), and the number of examples that do not fit into a row.

    A document of a stream of text does not have to: of these, the number longer than the context.
    """
    store = packing.store
    lengths = np.maximum(store.lengths, store.source.lengths) if store.source is not None else store.lengths
    return {"longest": int(lengths.max()), "longer": packing.n_too_long or int((lengths > packing.shape.context).sum())}
