"""A task, compiled as a function of tensors.

What goes into the compiled function and comes out of it is a flat tuple of tensors and whole numbers, beside the names
that they have: not every version of torch can rebuild a dataclass or a merged dict outside of what it compiled.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.nn.state import State
from mini_tf.objectives import LossSums

Leaf = Tensor | int
Structure = Any
"""What a value is without its tensors and numbers: nested tuples of words, classes and constants."""
_LEAF = "leaf"


class CompiledTask:
    """`task(batch, state)`, compiled; the module itself is not changed. options: of torch.compile."""

    def __init__(self, task: Callable[..., LossSums], **options: Any) -> None:
        self._task = task
        self._compiled = torch.compile(self._flat, **options)

    def __call__(self, batch: Batch, state: State | None = None) -> LossSums:
        # Counts change with each batch, and a loss is a sum, which does not depend on them.
        leaves, structure = flatten((replace(batch, counts={}), state))
        return LossSums(*unflatten(*self._compiled(leaves, structure)))

    def _flat(self, leaves: tuple[Leaf, ...], structure: Structure) -> tuple[tuple[Leaf, ...], Structure]:
        batch, state = unflatten(leaves, structure)
        return flatten(tuple(self._task(batch, state)))


def flatten(value: Any) -> tuple[tuple[Leaf, ...], Structure]:
    """The tensors and whole numbers in a value of tuples, dicts and dataclasses, in order, and the rest of it."""
    if isinstance(value, Tensor) or type(value) is int:
        return (value,), _LEAF
    if value is None or isinstance(value, str | float | bool):
        return (), ("constant", value)
    if isinstance(value, dict):
        container: Any = "dict"
        names, parts = tuple(value), tuple(value.values())
    elif isinstance(value, tuple):
        container, names, parts = "tuple", (), tuple(value)
    else:
        assert is_dataclass(value), f"a {type(value).__name__} is no part of a batch or of sums of losses"
        names = tuple(field.name for field in fields(value) if field.init)
        container, parts = type(value), tuple(getattr(value, name) for name in names)
    leaves: tuple[Leaf, ...] = ()
    structures: tuple[Structure, ...] = ()
    for part in parts:
        more, structure = flatten(part)
        leaves, structures = leaves + more, (*structures, structure)
    return leaves, (container, names, structures)


def unflatten(leaves: tuple[Leaf, ...], structure: Structure) -> Any:
    """The inverse of `flatten`."""
    value, rest = _taken(leaves, structure)
    assert not rest
    return value


def _taken(leaves: tuple[Leaf, ...], structure: Structure) -> tuple[Any, tuple[Leaf, ...]]:
    """The value of the first leaves, and the other leaves."""
    if structure == _LEAF:
        return leaves[0], leaves[1:]
    if structure[0] == "constant":
        return structure[1], leaves
    container, names, structures = structure
    parts = []
    for part in structures:
        value, leaves = _taken(leaves, part)
        parts.append(value)
    if container == "tuple":
        return tuple(parts), leaves
    named = dict(zip(names, parts, strict=True))
    return (named if container == "dict" else container(**named)), leaves
