"""Examples of a dataset, and their labels: names of classes, or mean and scale of numbers (config.json of a run)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, NamedTuple

from mini_tf.system.errors import DataFault, suggest
from mini_tf.system.strict_json import short

ASSISTANT = "assistant"
"""The role whose chat messages are targets."""


class Pair(NamedTuple):
    """A source and its target.

    where: file and line of the pair, or of its source. alignment: the gold word alignment, if the data have one.
    alternatives: further references; training uses `target` only.
    """

    source: str
    target: str
    where: str
    alignment: str | None = None
    alternatives: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """All reference targets; the first is the training target."""
        return self.target, *self.alternatives


class Example(NamedTuple):
    """One or two texts, the words of a sentence, or the messages of a chat, with their labels.

    labels: the class, the number, one tag per word, or the role of each message; empty if unknown. where: file and
    line. alternatives: other references for the last message of the assistant. n_dropped: messages after the last one
    of the assistant, which are dropped because they contain no target.
    """

    texts: list[str]
    labels: list[str]
    where: str
    alternatives: tuple[str, ...] = ()
    n_dropped: int = 0


@dataclass(frozen=True)
class Labels:
    """names: the classes in the order of their ids, empty for numbers; counts: of each class in the training split.

    mean, scale: mean and standard deviation of numbers in the training split; the target is (number - mean) / scale.
    n_texts: texts per example, 1 or 2. lax: the rules of tags that the training split does not follow, as in
    `scores.tag_scheme.TagScheme.of`.
    """

    names: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    mean: float = 0.0
    scale: float = 1.0
    n_texts: int = 1
    lax: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        lists = {"names": list(self.names), "counts": list(self.counts)}
        lax = {"lax": list(self.lax)} if self.lax else {}  # most data have none: their hash is that of earlier versions
        return lists | {"mean": self.mean, "scale": self.scale, "n_texts": self.n_texts} | lax

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> "Labels":
        """The inverse of `to_json`. Raises ValueError if `fields` is invalid."""
        names, counts, mean, scale = (fields.get(key) for key in ("names", "counts", "mean", "scale"))
        if (
            not isinstance(names, list)
            or not all(isinstance(name, str) for name in names)
            or len(set(names)) != len(names)
        ):
            raise ValueError("labels.names must be a list of distinct names")
        if (
            not isinstance(counts, list)
            or len(counts) != len(names)
            or not all(type(count) is int and count >= 0 for count in counts)
        ):
            raise ValueError("labels.counts must be a count for each name")
        if not isinstance(mean, float) or not isinstance(scale, float) or not isfinite(mean) or not 0 < scale < inf:
            raise ValueError("labels.mean and labels.scale must be finite numbers, the scale above 0")
        n_texts = fields.get("n_texts")
        if type(n_texts) is not int or n_texts not in (1, 2):
            raise ValueError("labels.n_texts must be 1 or 2")
        lax = fields.get("lax", [])
        if not isinstance(lax, list) or not all(isinstance(rule, str) for rule in lax):
            raise ValueError("labels.lax must be a list of rules")
        return cls(tuple(names), tuple(counts), mean, scale, n_texts, tuple(lax))


def unknown_label(name: str, known: Sequence[str], where: str, times: int = 1) -> DataFault:
    """The fault of a label that is not a known class and occurs `times` times; where: its first occurrence."""
    listed = ", ".join(map(short, known[:20])) + (", ..." if len(known) > 20 else "")
    hint = suggest(name, known, f"the classes are: {listed};", lambda label: repr(short(label)))
    message = f"the label {short(name)!r} is not one of the classes" + (f" ({times:,} times)" if times > 1 else "")
    return DataFault.located(where, message, hint=f"{hint} objective.labels lists all classes")
