"""A task, compiled as a function of tensors.

What goes into the compiled function and comes out of it is a flat tuple of tensors and whole numbers, beside the names
that they have: not every version of torch can rebuild a dataclass or a merged dict outside of what it compiled.

What a shape is compiled to depends on that shape alone. By default torch compiles the first shape that it meets for its
sizes, and the second one for any size; a resumed run, which meets others first, would compute other last bits.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch
from mini_tf.nn.state import State
from mini_tf.objectives import LossSums
from mini_tf.training.feed import Feed

Leaf = Tensor | int
Structure = Any
"""What a value is without its tensors and numbers: nested tuples of words, classes and constants."""
Dims = dict[int, tuple[int, ...]]
"""Dimensions of some of the leaves, by the index of the leaf."""
Varying = dict[Structure, Dims]
"""Dimensions that are symbols, by the structure of a batch."""
_LEAF = "leaf"
_SAMPLED_STEPS = 8


class CompiledTask:
    """`task(batch, state)`, compiled; the module itself is not changed. options: of torch.compile.

    varying: sizes that are symbols in one graph, as those of a state are; any other new size compiles a graph of its
    own.
    """

    def __init__(self, task: Callable[..., LossSums], varying: Varying | None = None, **options: Any) -> None:
        self.task = task
        # torch counts what it compiled by code object, and beyond a limit runs the code as it is, without a word: each
        # task has a code object of its own, so that many runs in one process do not use up each other's limit.
        function = FunctionType(type(self)._flat.__code__.replace(), globals(), "_flat")
        self._compiled = torch.compile(function.__get__(self), dynamic=False, **options)
        self._varying = varying or {}

    def __call__(self, batch: Batch, state: State | None = None) -> LossSums:
        # Counts change with each batch, and a loss is a sum, which does not depend on them.
        leaves, of_batch = flatten(replace(batch, counts={}))
        of_state, state_structure = flatten(state)
        dims = self._varying.get(of_batch, {}) | {
            n: tuple(range(len(size_of(leaf)))) for n, leaf in enumerate(of_state, len(leaves))
        }
        leaves += of_state
        numbers = tuple(n for n in dims if type(leaves[n]) is int)
        marked = tuple(_marked(leaf, dims[n]) if n in dims else leaf for n, leaf in enumerate(leaves))
        return LossSums(*unflatten(*self._compiled(marked, numbers, ("tuple", (), (of_batch, state_structure)))))

    def _flat(
        self, marked: tuple[Leaf, ...], numbers: tuple[int, ...], structure: Structure
    ) -> tuple[tuple[Leaf, ...], Structure]:
        """numbers: indices of the leaves that are numbers, given as the size of an empty tensor."""
        leaves = tuple(leaf.shape[0] if n in numbers else leaf for n, leaf in enumerate(marked))  # type: ignore[union-attr]
        batch, state = unflatten(leaves, structure)
        return flatten(tuple(self.task(batch, state)))


def compiled_task(task: nn.Module, feed: Feed | None = None) -> CompiledTask:
    """The task, compiled for the rows of a run; the same one for the same sizes, so that tuning, trial and training
    compile a shape once. What varies in the first steps of `feed` is a symbol.
    """
    varying = {} if feed is None else varying_dims(_first_batches(feed))
    key = frozenset((structure, frozenset(dims.items())) for structure, dims in varying.items() if dims)
    known: dict[Any, CompiledTask] = task.__dict__.setdefault("_compiled_tasks", {})
    if key not in known or known[key].task is not task:  # as after a deep copy of the task
        known[key] = CompiledTask(task, varying)
    return known[key]


def _first_batches(feed: Feed) -> Iterator[Batch]:
    """The micro-batches of the first steps, of all processes, at every start of a run the same."""
    everything = replace(feed, assigned=range)
    return (batch for step in range(_SAMPLED_STEPS) for batch in everything.micro_batches(step))


def varying_dims(batches: Iterable[Batch]) -> Varying:
    """The dimensions that differ between batches of one structure; a number counts as a size."""
    sizes: dict[Structure, list[set[tuple[int, ...]]]] = {}
    for batch in batches:
        leaves, structure = flatten(replace(batch, counts={}))
        seen = sizes.setdefault(structure, [set() for _ in leaves])
        for leaf, of_leaf in zip(leaves, seen, strict=True):
            of_leaf.add(size_of(leaf))
    return {structure: _varying(seen) for structure, seen in sizes.items()}


def _varying(seen: list[set[tuple[int, ...]]]) -> Dims:
    dims = {
        n: tuple(dim for dim, of_dim in enumerate(zip(*sizes, strict=True)) if len({*of_dim}) > 1)
        for n, sizes in enumerate(seen)
    }
    return {n: of_leaf for n, of_leaf in dims.items() if of_leaf}


def size_of(leaf: Leaf) -> tuple[int, ...]:
    return (leaf,) if type(leaf) is int else tuple(leaf.shape)  # type: ignore[union-attr]


def _marked(leaf: Leaf, dims: tuple[int, ...]) -> Tensor:
    """The tensor, or an empty one of this size, with dimensions whose sizes the compiler takes for symbols."""
    tensor = torch.empty(leaf, 0) if type(leaf) is int else leaf
    assert isinstance(tensor, Tensor)
    torch._dynamo.maybe_mark_dynamic(tensor, list(dims))
    return tensor


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
