"""step: tokens a second in training at equal work, by a fixed batch on the same weights.

Equal work: the same architecture (GPT-2; BERT), and the losses of the first steps, from the same weights and on the
same batch, agree with the plain loop's to 1e-4, or the side fails (of encoders only the first loss). All in fp32;
`minitf auto` is a whole `minitf pretrain` on the text with what `runtime: auto` takes, timed by its own records.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from .contest import Contest, Options, Side, answer, device, module, threads
from .peers import MINITF, missing_nanogpt
from .shapes import SHAPES
from .texts import text_of

SECONDS = 6.0


def contests(options: Options) -> Iterator[Contest]:
    shapes = ["4x128", "6x384", "encoder"] if not options.small else ["4x128", "encoder"]
    for name in shapes:
        notes = [f"{SHAPES[name].flops / 1e9:.3g} GFLOP a step"]
        yield Contest(f"step {name}", "tokens/s", list(sides(name, options)), notes=notes)


def sides(name: str, options: Options) -> Iterator[Side]:
    yield Side("minitf", module("step", "minitf", name), own=True)
    yield Side("plain torch", module("step", "plain", name))
    if not options.small:
        yield Side("minitf auto", module("step", "auto", name, text_of(options)), own=True, equal=False)
    if not options.small and not SHAPES[name].masked:
        yield Side("nanoGPT", module("step", "nanogpt", name, options.nanogpt or "-"), missing_nanogpt(options))


def measure(side: str, name: str, path: str = "") -> dict[str, Any]:
    """Tokens a second of one side. Raises UnequalWork where its first loss is not the plain model's."""
    shape = SHAPES[name]
    figures = recorded(name, path) if side == "auto" else in_process(side, name, Path(path))
    return {"value": shape.tokens / figures["seconds"], "flops": shape.flops / figures["seconds"], **figures}


def in_process(side: str, name: str, checkout: Path, seconds: float = SECONDS) -> dict[str, Any]:
    if side == "minitf":
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as its command does, before torch is there
    import torch

    from . import loops, weights
    from .own import first_batch
    from .plain import plain

    torch.set_num_threads(threads())
    shape = SHAPES[name]
    reference, batch = plain(shape), first_batch(shape)
    expected = loops.expected_losses(shape, reference, batch)
    if side == "minitf":
        losses = loops.minitf(shape, reference)
    elif side == "plain":
        losses = loops.plain_loop(reference, reference, batch, fused=True)
    else:
        losses = loops.plain_loop(*loops.nanogpt(shape, reference, checkout), batch, fused=False)
    figures = loops.step_seconds(losses, seconds)
    weights.check_equal(figures["losses"], expected, side)
    return figures


def recorded(name: str, text: str) -> dict[str, Any]:
    """The mean step of a whole run (its records are rounded to milliseconds) with everything on auto, and what auto
    came to.
    """
    from .own import equal_recipe, shape_overrides

    shape = SHAPES[name]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        words = [
            "runtime.precision=auto",
            "runtime.compile=auto",
            f"data.train={text}",
            "log.every_steps=1",
            "log.samples=0",
        ]
        words += [f"runtime.device={device()}"]
        words += [
            f"train.steps={max(12, min(150, int(4e12 / shape.flops)))}",
            "eval.tokens=1k",
            "checkpoint.every_steps=1000",
        ]
        words += [f"tokenizer.vocab_size={shape.vocabulary}"] if shape.masked else ["tokenizer.kind=char"]
        command = [*MINITF, "pretrain", str(equal_recipe(shape)), *shape_overrides(shape), *words, "-d", str(run)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        ends = [json.loads(line)["seconds"] for line in (run / "timing.jsonl").read_text().splitlines()]
        auto = json.loads((run / "run.json").read_text()).get("auto", {})
    taken = [b - a for a, b in pairwise(ends[3:])]
    ordinary = [seconds for seconds in taken if seconds < 2 * statistics.median(taken)]  # no evaluation in between
    return {
        "seconds": statistics.mean(ordinary),
        "steps": len(ordinary),
        "detail": ", ".join(f"{k} {v}" for k, v in auto.items()),
    }


if __name__ == "__main__":
    answer(measure, sys.argv[1:])
