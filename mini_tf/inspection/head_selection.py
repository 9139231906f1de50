"""Selection of attention heads and stacks by `--kind`, `--layer 0,2-3,-1`, `--head 1,3` and `--stack encoder`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mini_tf.nn.model_stack import ModelStack
from mini_tf.system.errors import UsageFault


class HeadIndex(NamedTuple):
    """Index of a head: layers count the mixers of a kind from 0, heads those of a layer."""

    kind: str
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{kind_name(self.kind)} L{self.layer} H{self.head}"


def kind_name(kind: str) -> str:
    """Printed name of a kind of attention: decoder.self is "decoder self-attention"."""
    return f"{kind.replace('.', ' ')}-attention"


@dataclass(frozen=True)
class HeadSelection:
    """The options as given; None selects all."""

    kind: str | None = None
    layer: str | None = None
    head: str | None = None

    def select(self, heads: Iterable[HeadIndex]) -> set[HeadIndex]:
        """The selected ones of the model's heads. Raises UsageFault if an option names a missing one."""
        available = list(heads)
        kinds = sorted({index.kind for index in available})
        if self.kind is not None and self.kind not in kinds:
            raise UsageFault(f"--kind {self.kind}: the model has only {', '.join(kinds)}")
        of_kind = [index for index in available if self.kind in (None, index.kind)]
        layers = parse_indices("--layer", self.layer, 1 + max(index.layer for index in of_kind))
        of_layer = [index for index in of_kind if index.layer in layers]
        numbers = parse_indices("--head", self.head, 1 + max(index.head for index in of_layer))
        return {index for index in of_layer if index.head in numbers}


def parse_indices(option: str, value: str | None, count: int) -> set[int]:
    """Indices below `count` in a list such as 0,2-3,-1; None selects all. Raises UsageFault for others."""
    if value is None:
        return set(range(count))
    selected: set[int] = set()
    for part in value.split(","):
        found = re.fullmatch(r"\s*(-?[0-9]{1,6})(?:-(-?[0-9]{1,6}))?\s*", part)
        if found is None:
            raise UsageFault(f"{option} {value}: must be numbers and ranges, such as 0,2-3,-1")
        ends = [int(end) for end in found.groups() if end is not None]
        for end in ends:
            if not -count <= end < count:
                raise UsageFault(f"{option} {value}: {end} is out of range; indices are 0 to {count - 1}")
        first, last = (ends[0] % count, ends[-1] % count)
        if last < first:
            raise UsageFault(f"{option} {value}: the range {part.strip()} is empty")
        selected |= set(range(first, last + 1))
    return selected


def stack_name(stack: ModelStack) -> str:
    """The name of a stack for --stack: encoder, decoder."""
    return stack.attention.partition(".")[0]


def select_stack(stacks: Iterable[ModelStack], name: str | None, kind: str) -> ModelStack:
    """The stack called `encoder` or `decoder`; None: the first. kind: of the model, for the message of a UsageFault."""
    named: Mapping[str, ModelStack] = {stack_name(one): one for one in stacks}
    if name not in (None, *named) and len(named) == 1:
        raise UsageFault(
            f"--stack {name}: a model of kind {kind} has only one stack to show, {next(iter(named))}",
            hint="leave it out",
        )
    if name is not None and name not in named:
        raise UsageFault(f"--stack {name}: must be {' or '.join(sorted(named))}")
    return named[name] if name is not None else next(iter(named.values()))
