"""Tables and settings that several families share."""

from collections.abc import Mapping, Sequence

from mini_tf.interchange import Layout

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
