"""Which heads are wanted: `--kind`, `--layer 0,2-3,-1` and `--head 1,3`, held against those that the model has."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from mini_tf.system.errors import UsageFault


class HeadPlace(NamedTuple):
    """Where a head stands; layers count the mixers of a kind from 0, heads those of a layer."""

    kind: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{kind_name(self.kind)} L{self.layer} H{self.head}"


def kind_name(kind: str) -> str:
    """A kind of heads in words: decoder.self is "decoder self-attention"."""
    return f"{kind.replace('.', ' ')}-attention"


@dataclass(frozen=True)
class Choice:
    """What was asked for, as it was written; None = all."""

    kind: str | None = None
    layer: str | None = None
    head: str | None = None

    def of(self, places: Iterable[HeadPlace]) -> set[HeadPlace]:
        """The heads that are wanted of those there are; UsageFault where something asked for does not exist."""
        there = list(places)
        kinds = sorted({place.kind for place in there})
        if self.kind is not None and self.kind not in kinds:
            raise UsageFault(f"--kind {self.kind}: the model has {', '.join(kinds)} only")
        of_kind = [place for place in there if self.kind in (None, place.kind)]
        layers = numbers("--layer", self.layer, 1 + max(place.layer for place in of_kind))
        of_layer = [place for place in of_kind if place.layer in layers]
        heads = numbers("--head", self.head, 1 + max(place.head for place in of_layer))
        return {place for place in of_layer if place.head in heads}


def numbers(option: str, asked: str | None, count: int) -> set[int]:
    """The numbers below `count` that a list such as 0,2-3,-1 names; None names all. UsageFault where it names another."""
    if asked is None:
        return set(range(count))
    chosen: set[int] = set()
    for part in asked.split(","):
        found = re.fullmatch(r"\s*(-?[0-9]{1,6})(?:-(-?[0-9]{1,6}))?\s*", part)
        if found is None:
            raise UsageFault(f"{option} {asked}: must be numbers and ranges, such as 0,2-3,-1")
        ends = [int(end) for end in found.groups() if end is not None]
        for end in ends:
            if not -count <= end < count:
                raise UsageFault(f"{option} {asked}: there is no {end}; they are 0 to {count - 1}")
        first, last = (ends[0] % count, ends[-1] % count)
        if last < first:
            raise UsageFault(f"{option} {asked}: the range {part.strip()} is empty")
        chosen |= set(range(first, last + 1))
    return chosen
