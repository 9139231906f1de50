"""Whether the files of a recipe are what it needs: every row of them is read, and every fault of them found, not the first alone."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from mini_tf.data.datasets import Dataset
from mini_tf.data.formats.text_lines import undecodable_lines
from mini_tf.data.labels import unknown_label
from mini_tf.data.raw import Files, RawData
from mini_tf.data.split import Division
from mini_tf.data.store import Store
from mini_tf.recipe.data import Data
from mini_tf.system.errors import DataFault


@dataclass
class Faults:
    """The first `most` faults in words, and how many there are in all."""

    most: int
    lines: list[str] = field(default_factory=list)
    n: int = 0

    def add(self, fault: DataFault, more: str = "") -> None:
        """more: what comes of it, said behind it."""
        self.n += 1
        if len(self.lines) < self.most:
            self.lines.append("; ".join(filter(None, (fault.message, more, fault.hint))))


@dataclass(frozen=True)
class Side:
    """What one side holds. classes: how often each is named; repeated: examples that stand there once more than once."""

    examples: int
    characters: int
    repeated: int
    classes: Counter[str]


@dataclass(frozen=True)
class Checked:
    """faults: none where the recipe can be trained. sides: as the recipe divides its data; none where they cannot be divided.

    known_twice: examples of data.val that stand in data.train too, which training leaves out.
    """

    faults: Faults
    sides: dict[str, Side]
    known_twice: int


def check(dataset: Dataset, data: Data, most: int) -> Checked:
    """Read all files of a recipe and report the first `most` faults; what is sound is divided and counted as training would."""
    faults, files = Faults(most), RawData(dataset, data).files
    readable = {side: one for side, one in files.items() if _found(one, faults)}
    for one in readable.values():
        for _ in _sound(one, faults):
            pass
    if len(readable) < len(files):
        return Checked(faults, {}, 0)
    unseen = Faults(0)
    reads = {side: partial(_sound, one, unseen) for side, one in readable.items()}
    try:
        division = dataset.divide(reads["train"], reads.get("val"), data.split)
        labels = dataset.labels_of(example for side, example in division.read() if side == "train")
        sides = _sides(dataset, division)
    except DataFault as fault:  # where most rows are none, too few may be left: that is told already
        if not faults.n:
            faults.add(fault)
        return Checked(faults, {}, 0)
    _unknown_classes(dataset, division, sides, () if labels is None else labels.names, faults)
    known_twice = _examples(dataset, reads["val"]()) - sides["val"].examples if "val" in reads else 0
    return Checked(faults, sides, known_twice)


def _found(files: Files, faults: Faults) -> bool:
    try:
        return bool(files.sources)
    except DataFault as fault:
        faults.add(fault)
        return False


def _sound(files: Files, faults: Faults) -> Iterator[Any]:
    """The examples that can be read; what cannot is added to the faults."""
    strict = files.data.errors == "strict"
    for source in files.sources if strict else ():
        for fault in undecodable_lines(source.path, source.name) if source.format != "parquet" else ():
            faults.add(fault)
    data = files.data.model_copy(update={"errors": "replace"})
    for part in files.dataset.parts(files.sources, data, files.corpus, files.labels):
        try:
            for example in part:
                if isinstance(example, DataFault):
                    faults.add(example)
                else:
                    yield example
        except DataFault as fault:
            faults.add(fault, "what follows it was not read")


def _examples(dataset: Dataset, examples: Iterable[Any]) -> int:
    return sum(map(dataset.opens, examples))


def _sides(dataset: Dataset, division: Division) -> dict[str, Side]:
    found = {}
    for side in ("train", "val"):
        hashes, characters = dataset.known(whole=True).scan(example for one, example in division.read() if one == side)
        classes = Counter(name for one, example in division.read() if one == side for name in dataset.classes(example))
        found[side] = Side(len(hashes), characters, len(hashes) - len(np.unique(hashes)), classes)
    return found


def _unknown_classes(dataset: Dataset, division: Division, sides: dict[str, Side], known: Sequence[str], faults: Faults) -> None:
    """A fault for each class that is not `known` from the training side or by the recipe, at its first example."""
    places: dict[str, str] = {}
    for _, example in division.read():
        for name in dataset.classes(example):
            if name not in known:
                places.setdefault(name, example.where)
    for name, where in places.items():
        faults.add(unknown_label(name, known, where, times=sum(one.classes[name] for one in sides.values())))


def lengths(store: Store, context: int) -> dict[str, int]:
    """The longest example of a store in tokens, of its sources too, and how many do not fit into rows of `context` tokens."""
    longest = np.maximum(store.lengths, store.source.lengths) if store.source is not None else store.lengths
    return {"longest": int(longest.max()), "longer": int((longest > context).sum())}
