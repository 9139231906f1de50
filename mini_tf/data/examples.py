"""Examples of a dataset, and their labels: names of classes, or mean and scale of numbers (config.json of a run)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

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


Whole = Annotated[int, Field(strict=True, ge=0)]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]


@dataclass(frozen=True)
class Labels:
    """names: the classes in the order of their ids, empty for numbers; counts: of each class in the training split.

    mean, scale: mean and standard deviation of numbers in the training split; the target is (number - mean) / scale.
    n_texts: texts per example, 1 or 2. lax: the rules of tags that the training split does not follow, as in
    `scores.tag_scheme.TagScheme.of`.
    """

    names: tuple[str, ...] = ()
    counts: tuple[Whole, ...] = ()
    mean: Finite = 0.0
    scale: Annotated[Finite, Field(gt=0)] = 1.0
    n_texts: Annotated[Whole, Field(ge=1, le=2)] = 1
    lax: tuple[str, ...] = ()

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The id of each class."""
        return {name: n for n, name in enumerate(self.names)}

    def to_json(self) -> dict[str, Any]:
        fields = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        if not self.lax:  # as in most data, whose hash is that of earlier versions
            del fields["lax"]
        return fields

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> "Labels":
        """The inverse of `to_json`. Raises ValueError if `fields` is invalid."""
        if missing := [name for name in ("names", "counts", "mean", "scale", "n_texts") if name not in fields]:
            raise ValueError(f"labels.{missing[0]} is missing")
        try:
            labels: Labels = _LABELS.validate_python(fields)
        except ValidationError as error:
            name = error.errors()[0]["loc"][0]
            raise ValueError(f"labels.{name} must be {_LABELS_ARE[name]}") from None
        if len({*labels.names}) != len(labels.names) or len(labels.counts) != len(labels.names):
            raise ValueError("labels.names must be distinct, and labels.counts a count for each")
        return labels


_LABELS = TypeAdapter(Labels)
_LABELS_ARE: dict[str | int, str] = {
    "names": "a list of distinct names",
    "counts": "a count for each name",
    "mean": "a finite number",
    "scale": "a finite number above 0",
    "n_texts": "1 or 2",
    "lax": "a list of rules",
}


def unknown_label(name: str, known: Sequence[str], where: str, times: int = 1) -> DataFault:
    """The fault of a label that is not a known class and occurs `times` times; where: its first occurrence."""
    listed = ", ".join(map(short, known[:20])) + (", ..." if len(known) > 20 else "")
    hint = suggest(name, known, f"the classes are: {listed};", lambda label: repr(short(label)))
    message = f"the label {short(name)!r} is not one of the classes" + (f" ({times:,} times)" if times > 1 else "")
    return DataFault.located(where, message, hint=f"{hint} objective.labels lists all classes")
