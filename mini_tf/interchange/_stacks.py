"""Tables and settings that several families share."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from mini_tf.interchange import Layout
from mini_tf.recipe.kinds import Kind

Item = TypeVar("Item")

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "relu2": "relu2"}
"""Their words for activations without a gate, and ours."""


def their_word(ours: str, meanings: Mapping[str, str]) -> str:
    """Their word for one of ours; ours, which reading back refuses, if they have none."""
    return next((theirs for theirs, own in meanings.items() if own == ours), ours)


def within(prefix: str, table: Mapping[str, str | Sequence[str]], theirs: str) -> dict[str, Layout]:
    """The names of the modules of each layer of a stack: {"own.norm": "ln_1"} of the layers "stack" and ".h"."""
    names = {}
    for ours, given in table.items():
        parts = (given,) if isinstance(given, str) else given
        names[f"{prefix}.layers.{{i}}.{ours}"] = Layout(*(f"{theirs}.{{i}}.{part}" for part in parts))
    return names


def shortest_period(layers: Sequence[Item]) -> list[Item]:
    """The fewest first items that, repeated, are all of them."""
    lengths = range(1, len(layers) + 1)
    fitting = (n for n in lengths if all(one == layers[i % n] for i, one in enumerate(layers)))
    return list(layers[: next(fitting, 0)])


def value_of(kind: Kind, key: str, default: Any) -> Any:
    """A setting of a kind; the default if it has no such one, which reading back what was written finds out."""
    return kind.model_dump().get(key, default)
