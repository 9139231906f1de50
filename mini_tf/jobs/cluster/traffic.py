"""What the devices of a cluster send each other in a step: bytes and messages of each exchange, by formula.

A ring passes N parts around: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms". Recursive doubling
sends everything in each of log2 N rounds: Thakur et al. 2005, "Optimization of collective communication operations in
MPICH". What shards exchange: Rajbhandari et al. 2020 (ZeRO), arXiv:1910.02054, section 7.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

BACKWARD = 2 / 3
"""Share of the backward pass in the FLOPs of a training step."""


class Sent(NamedTuple):
    """What one device sends, one message after the other. bytes: of all messages together."""

    bytes: float
    messages: float

    def times(self, n: float) -> "Sent":
        return Sent(n * self.bytes, n * self.messages)


class Exchange(NamedTuple):
    """One exchange of a step. window: share of the step's compute behind which it is hidden, as far as that takes."""

    name: str
    formula: str
    sent: Sent
    window: float = 0.0


class Step(NamedTuple):
    """What is exchanged. devices: their number N. passes: micro-batches per device and step; idle: devices without any.

    weights, gradients: bytes of the whole model.
    """

    devices: int
    passes: int
    idle: int
    weights: int
    gradients: int


class Reduction(NamedTuple):
    """How gradients are added up. sent: of `bytes` on `devices`; overlaps: during the backward pass."""

    name: str
    formula: str
    sent: Callable[[int, int], Sent]
    overlaps: bool = False
    power_of_two: bool = False

    def exchange(self, step: Step) -> Exchange:
        """Only the last micro-batch's backward pass has all gradients; an idle device has none."""
        window = BACKWARD / step.passes if self.overlaps and not step.idle else 0.0
        return Exchange(f"gradients, {self.name}", self.formula, self.sent(step.gradients, step.devices), window)


class Shard(NamedTuple):
    """What the devices divide among them. divided: fields of `MemoryUse`; evenly: else by whole parameters, as
    `ShardedOptimizer` does. gathers: a block is gathered to compute.
    """

    divided: frozenset[str]
    exchanges: Callable[[Step, Reduction], list[Exchange]]
    evenly: bool = False
    gathers: bool = False


def ring(size: int, devices: int) -> Sent:
    """One way around the ring: all-gather, or reduce-scatter."""
    return Sent((devices - 1) / devices * size, devices - 1)


def ring_all_reduce(size: int, devices: int) -> Sent:
    return ring(size, devices).times(2)


def recursive_doubling(size: int, devices: int) -> Sent:
    rounds = (devices - 1).bit_length()
    return Sent(rounds * size, rounds)


def _replicated(step: Step, reduction: Reduction) -> list[Exchange]:
    return [reduction.exchange(step)]


def _optimizer(step: Step, reduction: Reduction) -> list[Exchange]:
    gather = Exchange("updated parameters, all-gather", "(N-1)/N x parameters", ring(step.weights, step.devices))
    return [reduction.exchange(step), gather]


def _full(step: Step, reduction: Reduction) -> list[Exchange]:
    window = 1.0 if reduction.overlaps else 0.0
    gathers = ring(step.weights, step.devices).times(2 * step.passes)
    scatter = ring(step.gradients, step.devices).times(step.passes)
    return [
        Exchange("parameters, all-gather", "2 (N-1)/N x parameters, each micro-batch", gathers, window),
        Exchange("gradients, reduce-scatter", "(N-1)/N x gradients, each micro-batch", scatter, window),
    ]


_RING = "2 (N-1)/N x gradients"
REDUCTIONS: Mapping[str, Reduction] = {
    "sum": Reduction("ring all-reduce", _RING, ring_all_reduce),
    "tree": Reduction("recursive doubling", "log2 N x gradients", recursive_doubling, power_of_two=True),
    "overlap": Reduction("ring all-reduce during the backward pass", _RING, ring_all_reduce, overlaps=True),
}
"""By `runtime.reduce`."""
SHARDS: Mapping[str, Shard] = {
    "none": Shard(frozenset(), _replicated),
    "optimizer": Shard(frozenset({"optimizer"}), _optimizer),
    "full": Shard(frozenset({"weights", "gradients", "optimizer"}), _full, evenly=True, gathers=True),
}
"""By `runtime.shard`."""
