"""The tables of a file of results: what was measured, the ratios that are wanted, and what was not measured and why."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..measuring import Record
from ..table import number
from .reports import OWN, PLAIN

PEAK_FLOPS = 989e12
"""bf16 products of an H100 or H200, dense, by their data sheets; MFU is told against it as well."""
GOALS = {
    "12x768": ("nanoGPT compiled", 1.05), "6x384": ("nanoGPT compiled", 1.5), "encoder": (f"{PLAIN} compiled", 1.3),
    "6x384 x 1": ("plain torch, cached", 3.0), "6x384 x 16": ("plain torch, cached", 2.0), "loss": ("nanoGPT", 5.0),
}  # fmt: skip
"""How many times as fast as a side minitf is to be, by the group of the result."""


class Ratio(NamedTuple):
    """How many times as fast as `side` minitf is, and what is wanted."""

    group: str
    side: str
    value: float
    goal: float | None


def ratios(results: Mapping[str, Mapping[str, Any]], reach: float) -> Iterator[Ratio]:
    """The ratios to every side. Of the time to a loss: if minitf reaches it."""
    for key, figures in results.items():
        group, _, side = key.rpartition(":")
        if side != OWN and (own := results.get(f"{group}:{OWN}")) and "value" in figures:
            yield Ratio(group, side, own["value"] / figures["value"], goal_of(group, side))
    own, peer = results.get(OWN), results.get("nanoGPT")
    if own and peer and own["loss"] <= reach:
        yield Ratio("loss", "nanoGPT", peer["value"] / own["value"], goal_of("loss", "nanoGPT"))


def goal_of(group: str, side: str) -> float | None:
    wanted, least = GOALS.get(group, ("", 0.0))
    return least if wanted == side else None


def show(console: Console, record: Record, reach: float) -> None:
    results, card = record.measurements, record.measurements.get("card", {})
    words = [
        f"{name} {value}"
        for name, value in {**record.content.get("versions", {}), **card}.items()
        if name != "value" and value
    ]
    console.print(", ".join(words), markup=False)
    if card:
        console.print(f"largest matrix product: {card['value'] / 1e12:.4g} TFLOP/s", markup=False)
    correctness(console, record)
    found = {(ratio.group, ratio.side): ratio for ratio in ratios(results, reach)}
    table = Table(
        "", "side", "ms", "tokens/s", "MFU of 989", "of product", "MiB", "minitf is", "goal", "spread", "choice"
    )
    for key, figures in results.items():
        group, _, side = key.rpartition(":")
        if group and "loss" not in figures:
            table.add_row(*map(escape, cells(group, side, figures, found.get((group, side)), card.get("value"))))
    if table.rows:
        console.print(table)
    table = Table("time to a loss", "seconds", "loss", "reached", "minitf is", "goal", "choice")
    for key, figures in results.items():
        if ":" not in key and "loss" in figures:
            ratio = found.get(("loss", key))
            reached = "yes" if figures["loss"] <= reach else "no"
            compared = (f"{ratio.value:.2f}x", f"{ratio.goal:g}x" if ratio.goal else "") if ratio else ("", "")
            table.add_row(
                key,
                f"{figures['value']:.1f}",
                f"{figures['loss']:.4f}",
                reached,
                *compared,
                escape(figures.get("choice", "")),
            )
    if table.rows:
        console.print(table)
    lines = {key: f"FAILED: {line['failed']}" for key, line in record.content.get("failed", {}).items()}
    for key, why in {**record.content.get("not_measured", {}), **lines}.items():
        if key not in results:
            console.print(f"{key}: {why}", markup=False, soft_wrap=True)


def cells(
    group: str, side: str, figures: Mapping[str, Any], ratio: Ratio | None, product: float | None
) -> Iterator[str]:
    """A side as words. `1.20x`: minitf makes that many times as many tokens a second as this side."""
    rounds = figures.get("rounds_ms") or figures.get("seconds") or []
    flops = figures.get("flops")
    yield from (group, side, number(figures["ms"]) if "ms" in figures else "", number(figures["value"]))
    yield f"{100 * flops / PEAK_FLOPS:.1f} %" if flops else ""
    yield f"{100 * flops / product:.1f} %" if flops and product else ""
    yield number(figures["memory_mib"]) if figures.get("memory_mib") else ""
    yield f"{ratio.value:.2f}x" if ratio else ""
    yield f"{ratio.goal:g}x" if ratio and ratio.goal else ""
    yield f"{100 * (max(rounds) - min(rounds)) / min(rounds):.0f} %" if rounds else ""
    same = figures.get("same")
    yield figures.get("choice", "") or (f"the first {same} tokens are the same" if same is not None else "")


def correctness(console: Console, record: Record) -> None:
    """One line a recipe: its losses, the CPU's, and what failed."""
    shown = {**record.measurements, **record.content.get("failed", {})}
    cases = {key: figures for key, figures in shown.items() if "loss" in figures and ":" in key}
    table = Table("recipe", "precision", "loss", "on a CPU", "difference", "seconds")
    for key, figures in sorted(cases.items()):
        recipe, _, precision = key.partition(":")
        known = figures.get("cpu_loss")
        compared = ("", "") if known is None else (f"{known:.4f}", f"{figures['loss'] - known:+.4f}")
        table.add_row(recipe, precision, f"{figures['loss']:.4f}", *compared, f"{figures.get('seconds', 0):.1f}")
    if cases:
        console.print(table)
