"""Throughput of one run in 1 and 2 processes on this machine, which divide the same number of CPU threads.

    python -m tests.benchmarks.nproc FILE.json [KEY=VALUE ...] [--runs N] [--recipe RECIPE] [--processes 1 2]
        [--shard WORD ...]

The sides train the same steps on the same global batch, in turns. Each figure is written to FILE.json as soon as it is
known, and the same command continues. Prints the median of tokens/s, and the median of the ratio to the first side,
over the runs. Examples, with gradients added up in a fixed order, and the optimizer state divided; and what it costs to
divide weights and gradients, too:

    python -m tests.benchmarks.nproc nproc.json runtime.reduce=tree runtime.shard=optimizer
    python -m tests.benchmarks.nproc shard.json optimizer.kind=adamw --processes 2 --shard none full
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .contest import RUN, Contest, Side, answer, module
from .measuring import Record, measure
from .processes import run, temporary_folder

WARM_UP = 4
"""Steps that are not timed."""
STEPS = 40
FIXED = (
    *("runtime.device=cpu", "runtime.precision=fp32", "runtime.compile=false"),
    *("train.batch_size=16", "train.micro_batch_size=4"),
    *("log.every_steps=1", "log.samples=0", "eval.every_steps=1000000", "eval.tokens=500", "eval.baseline=false"),
)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.nproc", description=__doc__)
    parser.add_argument("file", type=Path, help="where the measurements are kept")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--shard", nargs="+", default=[], help="sides with these values of runtime.shard")
    parser.add_argument("--recipe", default="gpt-char")
    given, settings = parser.parse_known_args(words)
    record = Record(given.file)
    sides = list(sides_of(given.processes, given.shard, given.recipe, settings))
    measure(
        Contest("processes", "tokens/s", sides),
        given.runs,
        record,
        1,
        lambda line: print(line, file=sys.stderr, flush=True),
    )
    print("\n".join(table(sides, record, given.runs)))
    return 1 if record.faults else 0


def sides_of(processes: Sequence[int], shards: Sequence[str], recipe: str, settings: Sequence[str]) -> Iterator[Side]:
    for n in processes:
        threads = f"runtime.threads={max(processes) // n}"
        for words in [[f"runtime.shard={shard}"] for shard in shards] or [[]]:
            name = " ".join([str(n), *(word.partition("=")[2] for word in words)])
            yield Side(name, module("nproc", n, recipe, RUN, threads, *words, *settings))


def table(sides: Sequence[Side], record: Record, runs: int) -> Iterator[str]:
    """A line for each side: the medians, and the range of the ratio to the first side."""
    first = record.runs(sides[0], runs)
    yield "processes     tokens/s   ratio   (lowest to highest)   of runs"
    for side in sides:
        pairs = [
            (found["value"], base["value"])
            for found, base in zip(record.runs(side, runs), first, strict=True)
            if found and base
        ]
        if pairs:
            ratios = [value / base for value, base in pairs]
            speed = statistics.median(value for value, _ in pairs)
            middle, extent = statistics.median(ratios), f"({min(ratios):.2f} to {max(ratios):.2f})"
            yield f"{side.name:>11}   {speed:8,.0f}   {middle:5.2f}   {extent:>19}   {len(pairs):>7}"


def throughput(processes: str, recipe: str, number: str, *settings: str) -> dict[str, Any]:
    """Tokens per second between the end of the warm-up and the last step. number: of the run, not used."""
    with temporary_folder() as folder:
        several = [] if processes == "1" else ["--nproc", processes]
        steps = f"train.steps={STEPS}"
        command = [
            sys.executable,
            "-m",
            "mini_tf",
            "pretrain",
            recipe,
            steps,
            *FIXED,
            *settings,
            *several,
            "-d",
            str(folder / "run"),
        ]
        run(command, folder)
        return figures(folder / "run")


def figures(folder: Path) -> dict[str, Any]:
    """Tokens per second of a run that reported each step, and its last loss."""
    reports, times = (read(folder / name) for name in ("metrics.jsonl", "timing.jsonl"))
    seconds = {one["step"]: one["seconds"] for one in times}
    trained = [one for one in reports if "tokens" in one and one["step"] in seconds]
    first, last = trained[WARM_UP - 1], trained[-1]
    taken = seconds[last["step"]] - seconds[first["step"]]
    return {"value": (last["tokens"] - first["tokens"]) / taken, "seconds": taken, "loss": last["loss"]}


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].isdigit():  # a side, measured in a process of its own
        answer(throughput, sys.argv[1:])
    else:
        sys.exit(main())
