"""The feed-forward layers of a stack as memories, by number, and their inputs in a forward pass.

Layers are numbered by call, so a layer with shared weights has a number per call.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn

from mini_tf.inspection._heads import parse_indices
from mini_tf.nn.layers.feed_forward import FeedForward
from mini_tf.nn.stack import Stack
from mini_tf.system.errors import UsageFault

Layers = Mapping[int, FeedForward]
"""The feed-forward layers of a stack by number."""


class MemoryIndex(NamedTuple):
    """Memory `number` of a layer, both from 0."""

    layer: int
    number: int

    def __str__(self) -> str:
        return f"{self.layer}:{self.number}"


def memory_layers(stack: Stack, run: str) -> Layers:
    """The feed-forward layers of the stack of a run. Raises UsageFault if there are none."""
    parts = [None if block.feed_forward is None else block.feed_forward.part for block in stack.blocks]
    layers = {number: part for number, part in enumerate(parts * stack.n_passes) if isinstance(part, FeedForward)}
    if not layers:
        raise UsageFault(
            f"{run} has no feed-forward layers, so no memories", hint="model.d_ff is the width of these layers"
        )
    return layers


def parse_layers(value: str | None, layers: Layers) -> list[int]:
    """The layers of `--layer`, in order; None: all. Raises UsageFault for others."""
    return sorted(parse_indices("--layer", value, 1 + max(layers)))


def parse_memories(values: Sequence[str], layers: Layers) -> list[MemoryIndex]:
    """The memories of `--memory L:I`, in order; both parts may be lists and ranges. Raises UsageFault for others."""
    memories: set[MemoryIndex] = set()
    for value in values:
        left, colon, right = value.partition(":")
        if not colon:
            raise UsageFault(f"--memory {value}: must be the numbers of a layer and of a memory, such as 3:511")
        for layer in parse_indices(f"--memory {value}: layer", left, 1 + max(layers)):
            numbers = parse_indices(f"--memory {value}: memory", right, len(layers[layer].values))
            memories |= {MemoryIndex(layer, number) for number in numbers}
    return sorted(memories)


@contextmanager
def recorded(stack: Stack, record: Callable[[int, FeedForward, Tensor], None]) -> Iterator[None]:
    """Within this block `record(layer, part, x)` is called with the input x (B, L, D) of each feed-forward layer."""
    calls: Counter[int] = Counter()

    def hook(number: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def before(part: nn.Module, inputs: tuple[Any, ...]) -> None:
            assert isinstance(part, FeedForward)
            layer = number + calls[number] * len(stack.blocks)
            calls[number] += 1
            record(layer, part, inputs[0])

        return before

    with ExitStack() as hooks:
        hooks.enter_context(stack.register_forward_pre_hook(lambda *_: calls.clear()))
        for number, block in enumerate(stack.blocks):
            if block.feed_forward is not None and isinstance(block.feed_forward.part, FeedForward):
                hooks.enter_context(block.feed_forward.part.register_forward_pre_hook(hook(number)))
        yield
