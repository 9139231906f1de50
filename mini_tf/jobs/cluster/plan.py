"""Time, memory and efficiency of a training step on N devices, by formula.

The global batch of the recipe is the same on any number of devices (strong scaling), so efficiency is the time of one
device over N times that of N. Source: Narayanan et al. 2021, arXiv:2104.04473, sections 3 and 5, for data parallelism.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mini_tf.jobs.cluster.demand import Demand
from mini_tf.jobs.cluster.traffic import REDUCTIONS, SHARDS, Exchange, Reduction, Shard, Step
from mini_tf.system.errors import UsageFault
from mini_tf.training.sharding.sharded_optimizer import owners


@dataclass(frozen=True)
class Cluster:
    """flops: peak FLOP/s of a device; utilization: the share of it that training reaches without exchanges.

    bandwidth: bytes per second that a device sends while it receives as many; latency: seconds per message. memory:
    bytes of a device, None: not checked.
    """

    flops: float
    bandwidth: float
    utilization: float
    latency: float
    memory: float | None = None

    def seconds(self, exchange: Exchange) -> float:
        return exchange.sent.bytes / self.bandwidth + exchange.sent.messages * self.latency


@dataclass(frozen=True)
class Plan:
    """A step of `demand` on `devices` devices; reduce, shard: as `runtime.reduce` and `runtime.shard`.

    Raises UsageFault if the reduction cannot work on this number of devices.
    """

    demand: Demand
    cluster: Cluster
    devices: int
    reduce: str
    shard: str

    def __post_init__(self) -> None:
        if self.reduction.power_of_two and self.devices & (self.devices - 1):
            near = 1 << (self.devices.bit_length() - 1)
            raise UsageFault(
                f"--devices {self.devices}: runtime.reduce {self.reduce} needs a power of two", hint=f"use {near} or {2 * near}"
            )

    @property
    def reduction(self) -> Reduction:
        return REDUCTIONS[self.reduce]

    @property
    def sharding(self) -> Shard:
        return SHARDS[self.shard]

    @property
    def passes(self) -> int:
        """Micro-batches of the busiest device in a step."""
        most = -(-self.demand.micro_batches // self.devices)
        return 1 << (most - 1).bit_length() if self.reduction.power_of_two else most

    @property
    def idle(self) -> int:
        """Devices without a micro-batch."""
        micro_batches = self.demand.micro_batches
        busy = -(-micro_batches // self.passes) if self.reduction.power_of_two else micro_batches  # aligned blocks, or evenly
        return max(0, self.devices - busy)

    @property
    def compute(self) -> float:
        """Seconds of forward and backward passes of the busiest device."""
        share = min(1.0, self.passes / self.demand.micro_batches)
        return share * self.demand.flops / (self.cluster.flops * self.cluster.utilization)

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """What is sent in a step; nothing on one device."""
        if self.devices == 1:
            return []
        memory = self.demand.memory
        step = Step(self.devices, self.passes, self.idle, memory.weights, memory.gradients)
        return self.sharding.exchanges(step, self.reduction)

    @property
    def communication(self) -> float:
        """Seconds of all exchanges."""
        return sum(map(self.cluster.seconds, self.exchanges))

    @property
    def hidden(self) -> float:
        """Seconds of exchanges that happen during computation."""
        windows = {exchange.window for exchange in self.exchanges}
        return sum(min(window * self.compute, self._within(window)) for window in windows)

    def _within(self, window: float) -> float:
        return sum(self.cluster.seconds(exchange) for exchange in self.exchanges if exchange.window == window)

    @property
    def step(self) -> float:
        """Seconds of a step."""
        return self.compute + self.communication - self.hidden

    @property
    def efficiency(self) -> float:
        """The time of one device, over `devices` times the time of a step here."""
        return self.demand.flops / (self.cluster.flops * self.cluster.utilization) / (self.devices * self.step)

    @property
    def memory(self) -> dict[str, float]:
        """Bytes per device, by what they hold."""
        divided = self.sharding.divided
        sizes = {name: size * self._share if name in divided else size for name, size in vars(self.demand.memory).items()}
        return {**sizes, "gathered": self.demand.gathered} if self.sharding.gathers and self.devices > 1 else sizes

    @cached_property
    def _share(self) -> float:
        """The largest share of a device in what is divided."""
        if self.sharding.evenly or not (sizes := self.demand.sizes):
            return 1 / self.devices
        loads = Counter[int]()
        for name, owner in owners(sizes, self.devices).items():
            loads[owner] += sizes[name]
        return max(loads.values()) / loads.total()

    @property
    def memory_bytes(self) -> float:
        return sum(self.memory.values())

    @property
    def fits(self) -> bool | None:
        """Whether a device has the memory; None: its memory is not known."""
        return None if self.cluster.memory is None else self.memory_bytes <= self.cluster.memory

    @property
    def run(self) -> float | None:
        """Seconds of all training steps; None if the recipe gives a time instead."""
        return None if self.demand.steps is None else self.demand.steps * self.step

    @property
    def metrics(self) -> dict[str, Any]:
        return {
            "devices": self.devices,
            "devices_idle": self.idle,
            "micro_batches_per_device": self.passes,
            "seconds_per_step": self.step,
            "seconds_per_step.compute": self.compute,
            "seconds_per_step.communication": self.communication,
            "seconds_per_step.hidden": self.hidden,
            "bytes_sent_per_step": sum(exchange.sent.bytes for exchange in self.exchanges),
            "tokens_per_second": self.demand.tokens / self.step,
            "efficiency": self.efficiency,
            "memory_bytes": self.memory_bytes,
            **{f"memory_bytes.{name}": size for name, size in self.memory.items()},
            "fits": self.fits,
            "seconds": self.run,
        }
