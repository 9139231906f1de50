"""The parts of the benchmark on a GPU: which processes each has, and how long it may take."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from .. import peers
from ..contest import DEVICE, Options, module
from ..measuring import Record
from . import card, decoding, tables, time_to_loss
from .correctness import PRECISIONS, STEPS, cases
from .reports import OWN, sides_of
from .running import Job, Part, Results, run

PARTS = ("correctness", "step", "generation", "loss")
SHARES = {"correctness": 0.22, "step": 0.4, "generation": 0.07, "loss": 1.0}
"""Of the whole time, that a part may take at most; the last one gets what is left, 2.5 of 8 minutes at least."""
MINUTES = 8.0
WORKERS = 6
"""Processes that share the GPU while recipes are trained, which leave it idle."""
SHAPES, TEXTS = ("12x768", "6x384", "encoder"), (1, 16)
SILENCE = {"correctness": 90.0, "step": 150.0, "generation": 60.0, "loss": 200.0}
"""Seconds without a result after which a process is given up."""


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    from . import __doc__ as manual

    parser = argparse.ArgumentParser(
        "python -m tests.benchmarks", description=manual, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--tiny", action="store_true", help="in miniature; the only form for a CPU")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"for everything ({MINUTES:g})")
    parser.add_argument("--nanogpt", type=Path, metavar="FOLDER", help="a checkout of nanoGPT")
    parser.add_argument(
        "--text", type=Path, metavar="FILE", help="tiny Shakespeare's input.txt, for the time to a loss"
    )
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="where results are kept (below outputs/)")
    asked = parser.parse_args(words)
    if strange := [name for name in asked.parts if name not in PARTS]:
        parser.error(f"no part {strange[0]!r}; there is {', '.join(PARTS)}")
    if asked.minutes <= 0:
        parser.error("--minutes must be more than 0")
    if asked.device == "cpu" and not asked.tiny:
        parser.error("on a CPU there is only the miniature: --device cpu --tiny")
    for path in (asked.nanogpt, asked.text):
        if path is not None and not path.exists():
            parser.error(f"{path}: not there")
    return asked


def main(words: Sequence[str] | None) -> int:
    asked, began = parse(words), time.monotonic()
    told = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    if asked.device == "cuda" and not has_gpu():
        told.print("--device cuda: torch finds no GPU here; --device cpu --tiny tries every part in miniature")
        return 9
    os.environ[DEVICE] = asked.device
    options = Options(
        nanogpt=asked.nanogpt and asked.nanogpt.resolve(),
        text=asked.text and asked.text.resolve(),
        threads=1 if asked.tiny else cores(),
    )
    versions = dict(peers.versions(options)) | (card.asked("name", "driver_version") if asked.device == "cuda" else {})
    out = asked.out or Path(
        "outputs", f"benchmarks-{asked.device}{'-tiny' if asked.tiny else ''}-{versions['minitf']}.json"
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(f"results: {out}", markup=False)
    record = Record(out)
    before = record.content.get("versions", {})
    if changed := [name for name in versions if before.get(name, versions[name]) != versions[name]]:
        told.print(
            f"{out}: its results are of {', '.join(f'{name} {before[name]}' for name in changed)}; another --out"
            " measures anew"
        )
        return 2
    record.note("versions", before | versions)
    results = Results(record, told.print)
    until = began + 60 * asked.minutes
    for part in [peak(), *(MAKERS[name](asked, options) for name in PARTS if name in (asked.parts or PARTS))]:
        now = time.monotonic()
        told.print(f"{part.name}: {sum(len(job.keys) for job in part.jobs)} results, {until - now:.0f} s left")
        run(
            part,
            results,
            max(1, options.threads // part.workers),
            min(until, now + 60 * asked.minutes * SHARES.get(part.name, 1.0)),
        )
        record.content.setdefault("seconds", {})[part.name] = round(time.monotonic() - now, 1)
        record.note(
            "not_measured",
            record.content.get("not_measured", {})
            | {key: job.missing for job in part.jobs for key in job.keys if job.missing},
        )
    tables.show(console, record, time_to_loss.REACH)
    return 1 if results.faults else 0


def has_gpu() -> bool:
    import torch  # the benchmarks of a CPU measure its start, in other processes

    return torch.cuda.is_available()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak() -> Part:
    """The fastest matrix product of this machine, for MFU."""
    return Part("peak", [Job(module("gpu.card"), ("card",))])


def correctness(asked: argparse.Namespace, options: Options) -> Part:
    """All recipes, dealt out to the workers."""
    keys = ["gpt-char-fast:fp32"] if asked.tiny else cases(PRECISIONS[asked.device])
    workers = 1 if asked.tiny else WORKERS
    command = module("gpu.correctness", 2 if asked.tiny else STEPS)
    jobs = [
        Job(command, tuple(keys[i::workers]), divisible=True, silence=SILENCE["correctness"]) for i in range(workers)
    ]
    return Part("correctness", jobs, workers)


def step(asked: argparse.Namespace, options: Options) -> Part:
    jobs = []
    for shape in ("tiny", "tiny-encoder") if asked.tiny else SHAPES:
        keys = tuple(f"{shape}:{side}" for side in sides_of(shape, options.nanogpt is not None))
        jobs.append(Job(module("gpu.steps", shape, options.nanogpt), keys, silence=SILENCE["step"]))
    return Part("step", jobs)


def generation(asked: argparse.Namespace, options: Options) -> Part:
    shape, rows, n_tokens = ("tiny", (2,), 20) if asked.tiny else ("6x384", TEXTS, decoding.N_TOKENS)
    jobs = []
    for n in rows:
        keys = tuple(f"{shape} x {n}:{side}" for side in decoding.SIDES)
        jobs.append(Job(module("gpu.decoding", shape, n, n_tokens), keys, silence=SILENCE["generation"]))
    return Part("generation", jobs)


def loss(asked: argparse.Namespace, options: Options) -> Part:
    missing, silence = "" if options.text else "no text given (--text FILE)", SILENCE["loss"]
    commands = {side: module("gpu.time_to_loss", side, options.text) for side in (OWN, "nanoGPT")}
    commands["nanoGPT"] += [str(options.nanogpt)]
    without = {OWN: missing, "nanoGPT": missing or peers.missing_nanogpt(options)}
    tiny = ["--tiny"] * asked.tiny
    jobs = [Job([*commands[side], *tiny], (side,), silence=silence, missing=without[side]) for side in commands]
    return Part("loss", jobs)


MAKERS = {"correctness": correctness, "step": step, "generation": generation, "loss": loss}
