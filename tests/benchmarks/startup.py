"""startup: seconds of `minitf --help`, and from the start of a process to its first training step, the token cache
warm.

The first step: until its record is in the run's metrics.jsonl; of nanoGPT, until it prints iteration 0, with its first
evaluation cut down to a batch.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .contest import Contest, Options, Side, answer, module
from .peers import MINITF, beside_python, missing_nanogpt, missing_package
from .processes import nanogpt_command, nanogpt_with, run, temporary_folder, until
from .texts import text_of

PROGRAMS = {
    "minitf": [*MINITF, "--help"],
    "torch": [sys.executable, "-c", "import torch"],
    "litgpt": [beside_python("litgpt"), "--help"],
    "transformers": [sys.executable, "-c", "from transformers import Trainer"],
}


def contests(options: Options) -> Iterator[Contest]:
    torch = Side("import torch", module("startup", "program", "torch"), equal=False)
    helps = [Side("minitf --help", module("startup", "program", "minitf"), own=True), torch]
    firsts = [Side("minitf", module("startup", "first", "minitf", text_of(options)), own=True), torch]
    if not options.small:
        helps.append(Side("litgpt --help", module("startup", "program", "litgpt"), missing_package("litgpt")))
        missing = missing_package("transformers", "accelerate")
        helps.append(Side("import Trainer", module("startup", "program", "transformers"), missing, equal=False))
        peer = module("startup", "first", "nanogpt", text_of(options), options.nanogpt or "-")
        firsts.append(Side("nanoGPT", peer, missing_nanogpt(options)))
    yield Contest("startup: --help", "seconds", helps, more=False)
    yield Contest("startup: first step", "seconds", firsts, more=False)


def measure(what: str, side: str, text: str = "", checkout: str = "") -> dict[str, Any]:
    with temporary_folder() as folder:
        if what == "program":
            seconds = sorted(run(PROGRAMS[side], folder).seconds for _ in range(3))[1]
        elif side == "minitf":
            seconds = first_step(text, folder)
        else:
            with nanogpt_with(Path(text), Path(checkout)) as copy:
                command = nanogpt_command("--max_iters=1", "--eval_iters=1", "--log_interval=1")
                seconds = until(command, copy.parent, copy.parent / "stdout", "iter 0:", copy)
    return {"value": seconds}


def first_step(text: str, folder: Path) -> float:
    """Of gpt-char; a dry run before it fills the caches of tokens and of what was measured on this machine."""
    command = [
        *MINITF,
        "pretrain",
        "gpt-char",
        f"data.train={text}",
        "data.split=tail 10%",
        "train.steps=500",
        "log.every_steps=1",
    ]
    run([*command, "--dry-run"], folder)
    return until([*command, "-d", str(folder / "run")], folder, folder / "run" / "metrics.jsonl", '"step"')


if __name__ == "__main__":
    answer(measure, sys.argv[1:])
