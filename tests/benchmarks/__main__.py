"""The command: which benchmarks, measured in turns, kept in a file, shown in tables."""

import argparse
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from . import __doc__ as manual
from . import machine, peers, table, texts
from .contest import Contest, Options, Side, device, module
from .gpu import suite
from .measuring import Record, call, measure
from .summary import Row, faults, rows

BENCHMARKS = ("step", "masked", "quality", "generation", "startup", "memory")
SMALL = ("step", "generation", "startup")


def main(words: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if words is None else words
    if "--tiny" in given or "cuda" in given or "--device=cuda" in given:
        return suite.main(given)
    asked = parse(given)
    options = options_of(asked)
    names = asked.benchmarks or (BENCHMARKS if asked.full else SMALL)
    record, console = Record(asked.out), Console(width=None if sys.stdout.isatty() else 180)
    told = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    report_start(console, record, options)
    if options.text is None:
        call(Side("corpus", module("texts")), 0, options.threads)
    measure(machine.PEAK, options.runs, record, options.threads, told.print)
    [peak] = rows(machine.PEAK, record, options.runs, None)
    measured = []
    for contest in contests_of(names, options):
        measure(contest, options.runs, record, options.threads, told.print)
        found = rows(contest, record, options.runs, peak.median and peak.median * 1e9)
        measured.append((contest, found))
        table.show(console, contest, found)
    table.show(console, machine.PEAK, [peak])
    table.show_unmeasured(console, measured, list(further(names, record, options)))
    record.note("summary", [as_json(contest, row) for contest, found in measured for row in found])
    under = list(faults(measured)) if asked.guard else []
    for fault in under:
        told.print(f"guard: {fault}")
    return 8 if under else 1 if record.faults else 0


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.benchmarks",
        description=manual,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("benchmarks", nargs="*", metavar="BENCHMARK", help=", ".join(BENCHMARKS))
    parser.add_argument("--full", action="store_true", help="everything; hours")
    parser.add_argument(
        "--guard", action="store_true", help="exit code 8 where a ratio to plain torch is under its floor"
    )
    parser.add_argument("--nanogpt", type=existing, metavar="FOLDER", help="a checkout of nanoGPT")
    parser.add_argument(
        "--text", type=existing, metavar="FILE", help="tiny Shakespeare's input.txt; default: the built-in corpus"
    )
    parser.add_argument(
        "--steps", nargs="+", default=[], metavar="RECIPE=N", help="quality: train.steps of a recipe, to reach the loss"
    )
    parser.add_argument(
        "--reach", type=float, default=1.88, help="quality: the loss to reach in nats (1.88 is for tiny Shakespeare)"
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="how often the sides take turns (3)")
    parser.add_argument(
        "--device", default="cpu", choices=["cpu", "cuda"], help="cuda: another benchmark, see --device cuda --help"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads of every side (all cores)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE.json", help="where measurements are kept; the ones it has are not repeated"
    )
    asked = parser.parse_args(words)
    if strange := [name for name in asked.benchmarks if name not in BENCHMARKS]:
        parser.error(f"no benchmark {strange[0]!r}; there is {', '.join(BENCHMARKS)}")
    if asked.runs < 1:
        parser.error("--runs must be at least 1")
    return asked


def existing(path: str) -> Path:
    if not Path(path).exists():
        raise argparse.ArgumentTypeError(f"{path}: not there")
    return Path(path).resolve()


def options_of(asked: argparse.Namespace) -> Options:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    steps = {recipe: int(n) for recipe, _, n in (word.partition("=") for word in asked.steps)}
    return Options(
        small=not (asked.full or asked.benchmarks), full=asked.full, runs=asked.runs, threads=asked.threads or cores,
        nanogpt=asked.nanogpt, text=asked.text, reach=asked.reach, steps=steps,
    )  # fmt: skip


def report_start(console: Console, record: Record, options: Options) -> None:
    """Say and keep what is compared, and on what."""
    about = dict(peers.versions(options))
    here = {
        "cpu": machine.name(),
        "threads": options.threads,
        "runs": options.runs,
        "text": str(texts.text_of(options)),
        "versions": about,
    }
    before = record.content.get("machine", here)
    changed = [name for name in here if name != "runs" and before.get(name) != here[name]]
    record.note("machine", here)
    console.print(f"{here['cpu']}, {options.threads} threads, {options.runs} runs a side", highlight=False)
    console.print(", ".join(f"{name} {version}" for name, version in about.items()), highlight=False)
    if changed:
        console.print(
            f"the file's older measurements were made with another {', '.join(changed)}; another --out measures anew",
            style="bold",
        )
    console.print()


def contests_of(names: Sequence[str], options: Options) -> Iterator[Contest]:
    for name in names:
        yield from importlib.import_module(f".{name}", __package__).contests(options)


def further(names: Sequence[str], record: Record, options: Options) -> Iterator[str]:
    """What no row speaks of."""
    left = [name for name in BENCHMARKS if name not in names]
    if left:
        yield f"{', '.join(left)}: not asked for"
    if options.small:
        yield "peers, larger shapes: in the small form; name a benchmark, or give --full"
    if not options.full:
        yield "quality of a larger shape: only with --full"
    gpus = {found["gpu"] for found in record.runs(machine.PEAK.sides[0], options.runs) if found is not None}
    if device() == "cpu":
        yield f"on a GPU ({', '.join(gpus)}): --device cuda" if gpus - {""} else "on a GPU: there is none here"


def as_json(contest: Contest, row: Row) -> dict[str, Any]:
    return {
        "contest": contest.name, "unit": contest.unit, "side": row.side.name, "median": row.median,
        "spread": row.spread,
        "ratio": row.ratio, "mfu": row.mfu, "equal_work": row.side.equal,
        "details": list(row.details), "not_measured": row.absent or None,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
