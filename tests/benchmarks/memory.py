"""memory: the most memory that a short whole training process holds, in MiB: 20 steps, an evaluation, a checkpoint."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .contest import Contest, Options, Side, answer, module
from .peers import MINITF, missing_nanogpt
from .processes import LARGER, nanogpt_command, nanogpt_with, run, temporary_folder
from .texts import text_of

N_STEPS = 20
SHAPE_OF = {
    "4x128": ["train.batch_size=12"],
    "6x384": ["model.n_layers=6", "model.d_model=384", "model.n_heads=6", "train.context=256", "train.batch_size=16"],
}


def contests(options: Options) -> Iterator[Contest]:
    for name in SHAPE_OF:
        own = Side("minitf gpt-char", module("memory", "minitf", name, text_of(options)), own=True)
        command = module("memory", "nanogpt", name, text_of(options), options.nanogpt or "-")
        yield Contest(f"memory {name}", "MiB", [own, Side("nanoGPT", command, missing_nanogpt(options))], more=False)


def measure(side: str, name: str, text: str, checkout: str = "") -> dict[str, Any]:
    if side == "minitf":
        with temporary_folder() as folder:
            words = [
                f"data.train={text}",
                "data.split=tail 10%",
                *SHAPE_OF[name],
                f"train.steps={N_STEPS}",
                "eval.every_steps=20",
            ]
            finished = run([*MINITF, "pretrain", "gpt-char", *words, "-d", str(folder / "run")], folder)
    else:
        with nanogpt_with(Path(text), Path(checkout)) as copy:
            larger = LARGER if name == "6x384" else []
            command = nanogpt_command(*larger, f"--max_iters={N_STEPS}", f"--eval_interval={N_STEPS}", "--eval_iters=1")
            finished = run(command, copy.parent, copy)
    return {"value": finished.peak / 2**20, "seconds": finished.seconds}


if __name__ == "__main__":
    answer(measure, sys.argv[1:])
