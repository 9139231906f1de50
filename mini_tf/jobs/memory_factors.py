"""Factors of the values of feed-forward memories, for `minitf convert --memory L:I=F`.

Source: memories as key-value pairs: Geva et al. 2021, arXiv:2012.14913, section 2.
"""

import math
import re
from collections.abc import Mapping, Sequence

import torch

from mini_tf.inspection.memory_layers import MemoryIndex, memory_layers, parse_memories
from mini_tf.nn.model import Model
from mini_tf.system.errors import UsageFault

MEMORY = "memory"
"""Key of the factors in the identity of a run."""
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
"""`float` would also read 1_0, spaces, and digits of other scripts."""


def parse_factors(values: Sequence[str], model: Model, run: str) -> dict[MemoryIndex, float]:
    """The factor of each memory of the stack before the head; L and I may be lists and ranges.

    Raises UsageFault for a missing memory, a factor that is not finite, or two factors of one memory.
    """
    factors: dict[MemoryIndex, float] = {}
    if not values:
        return factors
    stack = model.stacks()[0].stack
    layers = {layer: part for layer, part in memory_layers(stack, run).items() if layer < len(stack.blocks)}
    for value in values:
        which, _, given = value.partition("=")
        factor = float(given) if NUMBER.fullmatch(given) else math.nan
        if not which or not math.isfinite(factor):
            raise UsageFault(f"--memory {value}: must be L:I=F, with a finite number F, such as 3:511=0")
        for memory in parse_memories([which], layers):
            if memory in factors:
                raise UsageFault(f"--memory {value}: memory {memory} was given before", hint="give each memory once")
            factors[memory] = factor + 0.0  # no -0
    return factors


def describe(factors: Mapping[MemoryIndex, float]) -> str:
    """The factors in order, however they were given."""
    return ", ".join(f"{memory}={factor!r}" for memory, factor in sorted(factors.items()))


@torch.no_grad()
def scale_memories(model: Model, factors: Mapping[MemoryIndex, float]) -> None:
    """Multiply the value of each memory by its factor. Raises UsageFault if the dtype of the weights cannot hold it."""
    layers = memory_layers(model.stacks()[0].stack, "") if factors else {}
    for memory, factor in factors.items():
        value = layers[memory.layer].values[memory.number].mul_(factor)
        if not value.isfinite().all():
            raise UsageFault(f"--memory {memory}={factor!r}: the value is no longer finite", hint="give a smaller factor")
