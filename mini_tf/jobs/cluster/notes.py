"""What a reader of a plan must know: the assumption behind each number, idle devices, memory that does not suffice."""

from collections.abc import Iterator, Sequence

from mini_tf.jobs.cluster.demand import ASSUMED_PRECISION, Demand
from mini_tf.jobs.cluster.plan import Plan
from mini_tf.recipe.recipe import Recipe


def assumptions(plan: Plan, recipe: Recipe) -> list[str]:
    """One sentence or two for each number; the same for any number of devices."""
    demand, reduction = plan.demand, plan.reduction
    assumed = f" ({ASSUMED_PRECISION} assumed for runtime.precision auto)" if recipe.runtime.precision == "auto" else ""
    smallest = " (assumed for train.micro_batch_size auto)" if recipe.train.micro_batch_size == "auto" else ""
    overlap = "during the computation where that takes long enough" if reduction.overlaps else "after the computation, not during it"
    return [
        "All numbers are by formula; nothing was measured.",
        f"compute: FLOPs of matrix products in {demand.precision}{assumed}, forward and backward (3 x forward), at "
        f"{plan.cluster.utilization:.0%} of the peak of a device; the optimizer's update takes no time.",
        f"traffic: fp32; bytes that a device sends / bandwidth + messages x latency; {overlap}. All devices reach each other equally "
        "fast, and nothing else uses the network.",
        f"memory: tensors by their shapes, as in `minitf cost`; activations of a micro-batch, {_rows(demand.micro_batch_size)}{smallest}, "
        "without temporary buffers, the process and the driver.",
        "efficiency: the time of one device / (N x the time of N devices), with the same global batch on any number of devices.",
    ]


def warnings(plans: Sequence[Plan]) -> list[str]:
    """Idle devices, and memory that does not suffice."""
    return [*_idle(plans), *_memory(plans)]


def _idle(plans: Sequence[Plan]) -> Iterator[str]:
    if not (idle := [plan for plan in plans if plan.idle]):
        return
    last, demand = idle[-1], idle[-1].demand
    who = f"{_devices(idle)}: {last.idle:,} of {last.devices:,} devices have no micro-batch"
    has = f"a step of {_rows(demand.batch_size)} has {demand.micro_batches:,} micro-batches of {_rows(demand.micro_batch_size)}"
    yield f"{who}; {has}{_smaller(demand, last.devices)}"


def _smaller(demand: Demand, devices: int) -> str:
    """The largest micro-batch of which every device gets one, or the most devices that can get one."""
    if demand.batch_size < devices:
        return f"; at most {demand.batch_size:,} devices can have one, with train.micro_batch_size=1"
    size = next(size for size in range(demand.batch_size // devices, 0, -1) if demand.batch_size % size == 0)
    return f"; with train.micro_batch_size={size} there are {demand.batch_size // size:,}"


def _memory(plans: Sequence[Plan]) -> Iterator[str]:
    if not (large := [plan for plan in plans if plan.fits is False]):
        return
    least, limit = min(plan.memory_bytes for plan in large), plans[0].cluster.memory or 0.0
    yield f"{_devices(large)}: does not fit, {least / 1e9:,.3g} GB or more per device of {limit / 1e9:,.3g} GB"


def _devices(plans: Sequence[Plan]) -> str:
    first, last = plans[0].devices, plans[-1].devices
    return f"{first:,} to {last:,} devices" if first != last else f"{first:,} device{'s' if first > 1 else ''}"


def _rows(n: int) -> str:
    return f"{n:,} row{'s' if n != 1 else ''}"
