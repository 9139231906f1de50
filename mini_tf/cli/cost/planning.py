"""`minitf plan`: time, memory and efficiency of a training run on a cluster, by formula."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.numbers import doubled, duration, in_flop, number, short
from mini_tf.cli.terminal.options import RECIPE
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.jobs.cluster.plan import Plan
    from mini_tf.jobs.cluster.traffic import Exchange

MAX_DEVICES = 2**20
HEADERS = ("devices", "compute s", "traffic s", "step s", "tokens/s", "eff. %", "hours", "GB")
MEANING = (
    "compute, traffic, step: seconds of a step; traffic: what is not hidden behind computation; eff.: efficiency; hours: all training "
    "steps; GB: memory per device."
)


DEVICES = typer.Option("--devices", metavar="N|FIRST..LAST", help="Number of devices, or FIRST devices, doubled up to LAST.")
FLOPS = typer.Option("--device-flops", metavar="F", help="Peak FLOP/s of a device, such as 312T.")
BANDWIDTH = typer.Option("--bandwidth", metavar="B", help="Bytes per second that a device can send, such as 25G (200 Gbit/s).")
MEMORY = typer.Option("--device-memory", metavar="M", help="Bytes of a device, such as 80G.", show_default="not checked")
LATENCY = typer.Option("--latency", metavar="S", help="Seconds per message.")
UTILIZATION = typer.Option("--utilization", metavar="U", help="Share of the peak that training reaches without exchanges.")
SHARD = typer.Option(
    "--shard",
    metavar="none|optimizer|full",
    help="What devices divide; full (FSDP) is an estimate of what minitf does not do.",
    show_default="runtime.shard of the recipe",
)
VOCABULARY = typer.Option(
    "--vocabulary",
    min=1,
    max=2**24,
    metavar="N",
    help="Size of the vocabulary, if the data are a sample.",
    show_default="the tokenizer's",
)


@command
def plan(
    console: Console,
    devices: Annotated[str, DEVICES],
    device_flops: Annotated[str, FLOPS],
    bandwidth: Annotated[str, BANDWIDTH],
    arguments: RECIPE = None,
    device_memory: Annotated[str | None, MEMORY] = None,
    latency: Annotated[str, LATENCY] = "10e-6",
    utilization: Annotated[str, UTILIZATION] = "40%",
    shard: Annotated[Literal["none", "optimizer", "full"] | None, SHARD] = None,
    vocabulary: Annotated[int | None, VOCABULARY] = None,
) -> None:
    """Estimate step time, memory per device and efficiency of data-parallel training on a cluster, by formula.

    Nothing is trained: FLOPs and memory are those of `minitf cost`, from shapes alone, so a model of any size is
    planned on any machine. The global batch of the recipe is the same on any number of devices; runtime.reduce
    says how gradients are added up. The output says what
    each number assumes. One number of devices prints details, a range a table. --json: `metrics` is that of the last
    number of devices.
    """
    from mini_tf.recipe.arguments import split_arguments
    from mini_tf.recipe.reading import DEFAULT_RECIPE
    from mini_tf.recipe.values import Seconds, Share
    from mini_tf.run.kind_sources import resolve

    counts = doubled("--devices", devices, MAX_DEVICES) if ".." in devices else [_count(devices)]
    cluster = (
        number("--device-flops", device_flops, "312T"),
        number("--bandwidth", bandwidth, "25G"),
        number("--utilization", utilization, "40%", Share, most=1.0),
        number("--latency", latency, "10e-6", Seconds, least=0.0),
        None if device_memory is None else number("--device-memory", device_memory, "80G"),
    )
    recipe, overrides = split_arguments(arguments or [])
    resolved = resolve(recipe or DEFAULT_RECIPE, overrides)

    from mini_tf.jobs.cluster.demand import demand_of
    from mini_tf.jobs.cluster.notes import assumptions, warnings
    from mini_tf.jobs.cluster.plan import Cluster, Plan

    console.say(f"{resolved.name}: reading the data, then counting FLOPs and bytes")
    reduce, shard = resolved.recipe.runtime.reduce, shard or resolved.recipe.runtime.shard
    demand = demand_of(resolved.recipe, console, vocabulary)
    plans = [Plan(demand, Cluster(*cluster), n, reduce, shard) for n in counts]
    notes, warned = assumptions(plans[0], resolved.recipe), warnings(plans)
    _show(console, resolved.name, plans, [*warned, *notes])
    result = {
        "recipe": resolved.name,
        "reduce": reduce,
        "shard": shard,
        "cluster": vars(plans[0].cluster),
        "demand": {**vars(demand), "memory": vars(demand.memory), "sizes": len(demand.sizes)},
        "plans": [one.metrics for one in plans],
        "warnings": warned,
        "assumptions": notes,
    }
    console.output(metrics=plans[-1].metrics, result=result)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_DEVICES):
        raise UsageFault(f"--devices {text}: must be a whole number from 1 to {MAX_DEVICES:,}, or a range such as 1..4096")
    return int(text)


def _show(console: Console, name: str, plans: "Sequence[Plan]", notes: Sequence[str]) -> None:
    """Details of one plan, or a table; then the notes."""
    from mini_tf.drawing.terminal import sentence, table

    if len(plans) == 1 and not console.json:
        console.print_output("\n".join(f"{what:<11} {value}".rstrip() for what, value in _details(name, plans[0])))
    elif not console.json:
        fits = () if plans[0].fits is None else ("fits",)
        console.show(table, (*HEADERS, *fits), [_cells(plan) for plan in plans])
        notes = [MEANING, *notes]
    for note in notes:
        console.show(sentence, f"- {note}")


def _cells(plan: "Plan") -> list[str]:
    numbers = (plan.compute, plan.communication - plan.hidden, plan.step)
    return [
        f"{plan.devices:,}",
        *map(_three_digits, numbers),
        short(plan.demand.tokens / plan.step),
        f"{100 * plan.efficiency:.1f}",
        "" if plan.run is None else _three_digits(plan.run / 3600),
        _three_digits(plan.memory_bytes / 1e9),
        *([] if plan.fits is None else ["yes" if plan.fits else "no"]),
    ]


def _details(name: str, plan: "Plan") -> list[tuple[str, str]]:
    """A line for each quantity, with its formula."""
    demand, cluster = plan.demand, plan.cluster
    speed = f"{in_flop(cluster.flops)}/s, {_size(cluster.bandwidth)}/s, {duration(cluster.latency)} per message"
    share = f"{plan.passes:,} of {demand.micro_batches:,} micro-batches per device"
    peak = f"{in_flop(cluster.flops)}/s x {cluster.utilization:.0%}"
    limit = "" if cluster.memory is None else f" of {_size(cluster.memory)}, {'fits' if plan.fits else 'does not fit'}"
    return [
        ("recipe", f"{name}: {demand.parameters:,} parameters, {demand.tokens:,} tokens per step"),
        ("cluster", f"{plan.devices:,} devices of {speed}; reduce {plan.reduce}, shard {plan.shard}"),
        ("compute", f"{duration(plan.compute)} per step: {in_flop(demand.flops)}, {share}, {peak}"),
        *(("traffic", _exchange(plan, exchange)) for exchange in plan.exchanges),
        *([("hidden", f"{duration(plan.hidden)} of the traffic, behind computation")] if plan.hidden else []),
        ("step", f"{duration(plan.step)}, {short(demand.tokens / plan.step)} tokens/s, efficiency {plan.efficiency:.1%}"),
        *([] if plan.run is None else [("time", f"{duration(plan.run)} for {demand.steps:,} steps")]),
        ("memory", f"{_size(plan.memory_bytes)} per device{limit}"),
        *(("", f"{part} {_size(size)}") for part, size in plan.memory.items()),
    ]


def _exchange(plan: "Plan", exchange: "Exchange") -> str:
    sent = exchange.sent
    seconds = duration(plan.cluster.seconds(exchange))
    return f"{seconds} for {exchange.name}: {_size(sent.bytes)} ({exchange.formula}), {sent.messages:,.0f} messages"


def _three_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 999.5 else f"{number:.3g}"


def _size(n_bytes: float) -> str:
    """Decimal, as bandwidth and memory are given."""
    return f"{short(n_bytes)}B" if n_bytes >= 1000 else f"{n_bytes:.3g} B"
