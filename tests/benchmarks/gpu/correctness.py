"""correctness: every shipped recipe trains 40 steps in bf16 and fp16, evaluates, predicts or generates, and draws.

    python -m tests.benchmarks.gpu.correctness 40 quickstart:bf16 cbow-nano:fp16
    python -m tests.benchmarks.gpu.correctness --reference         the CPU's losses that losses.json lacks

Recipes are as shipped but for three things. Data: `python-docs` is another text in every Python, and some recipes name
files that are not shipped, so all read built-in corpora that are the same everywhere. Rows: a step has about 512
tokens, so that the losses of the CPU cost minutes. Dropout: at most 0.1, as a GPU draws other random numbers.

The validation loss after the last step is compared with that of a CPU in fp32 (losses.json), from the same weights,
rows and masks: what differs is the precision, the order of sums and the random numbers of dropout. See SHARE.
"""

import io
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..contest import device
from .reports import reason, tell
from .running import RESTART

STEPS = 40
PRECISIONS = {"cuda": ("bf16", "fp16"), "cpu": ("fp32", "bf16")}
LOSSES = Path(__file__).with_name("losses.json")
SHARE, SLACK = 0.03, 0.05
"""A loss may differ from the CPU's by this share of it, or by this many nats if that is more.

On a CPU, bf16 in place of fp32 changes it by up to 2 % (cbow-ladder-8; others 0.6 % and less), other random numbers of
dropout by up to 1 % (wnut17-nano); of the shipped rate of 0.5 by 8 % (sst2-nano, 9 draws).
"""

TEXTS = "data.train={kind: world, n_documents: 1000}"
PAIRS = ("data.train=translate-toy", "data.split=1%")
CLASSES = (TEXTS, "data.fields={text: text, label: topic}")
TAGS = (TEXTS, "data.fields={text: text, label: senses}")
CHATS = (*PAIRS, "data.fields={prompt: source, response: target}")
DATA = {
    "babylm-10m": (TEXTS, "data.val=null", "train.words=null", "checkpoint.at_words=[]", "model.n_layers=2"),
    "multi-label-nano": (TEXTS, "data.fields={text: text, labels: kinds}"),
    "classify-nano": (*CLASSES, "train.seeds=1", "train.ensemble=null"), "sst2-nano": CLASSES, "tag-nano": TAGS,
    "wnut17-nano": TAGS, "contrastive-nano": PAIRS,
    "instruct-nano": CHATS, "multi30k-en-de": (*PAIRS, "data.val=null"), "scitldr-nano": PAIRS, "summarize-nano": PAIRS,
    "transformer-base": (*PAIRS, "schedule.warmup=10"), "transformer-nano": PAIRS,
}  # fmt: skip
"""The data of the recipes that do not read running text."""
STEP_TOKENS, MOST_DROPOUT = 512, 0.1
TEXT = "the tebos that pimom fos the vagu lured it ."
MASKED, LABELLED = ("generate", "the tebos that [MASK] fos the vagu lured it ."), ("predict", TEXT)
COMMANDS = {
    **{f"cbow-ladder-{n}": MASKED for n in range(1, 12)}, "cbow-nano": MASKED, "bert-nano": MASKED,
    "perceiver-nano": MASKED,
    "bart-nano": MASKED, "t5-nano": MASKED, "classify-nano": LABELLED, "sst2-nano": LABELLED, "tag-nano": LABELLED,
    "multi-label-nano": LABELLED, "wnut17-nano": LABELLED, "electra-nano": ("inspect replaced", TEXT),
    "contrastive-nano": ("embed", TEXT),
}  # fmt: skip
"""What a model is used for, where it does not continue or translate a text."""
PICTURES = {"sru-nano": "inspect gates", "perceiver-nano": "inspect latents"}
"""Of models without attention weights of tokens."""
SMALLEST_PICTURE = 1000
COMPILED = ("quickstart", "bert-nano", "transformer-nano")
"""A decoder, an encoder and both: their code is compiled, too, which takes half a minute each."""


class Failed(Exception):
    """A command of minitf did not end with exit code 0."""


def minitf(*words: str) -> dict[str, Any]:
    """One command in this process, with `--json`: its result. Raises Failed with the last line of its messages."""
    from mini_tf.cli.app import main

    before = sys.stdin, sys.stdout, sys.stderr, sys.argv
    streams = [io.TextIOWrapper(io.BytesIO()) for _ in range(3)]
    sys.stdin, sys.stdout, sys.stderr = streams
    sys.argv = ["minitf", *words, "-q", "--json"]
    exit_code: Any = 0
    try:
        main()
    except SystemExit as leaving:
        exit_code = leaving.code or 0
    finally:
        sys.stdin, sys.stdout, sys.stderr, sys.argv = before
    out, err = (stream.buffer.getvalue().decode() for stream in streams[1:])  # type: ignore[attr-defined]
    if exit_code:
        raise Failed(f"minitf {words[0]}: exit code {exit_code}: {(err.strip().splitlines() or ['no message'])[-1]}")
    result: dict[str, Any] = json.loads(out.strip().splitlines()[-1]) if out.strip() else {}
    return result


def recipes() -> list[str]:
    """The names of all shipped recipes."""
    from mini_tf.recipe.arguments import presets

    return [*presets()]


def cases(precisions: Sequence[str]) -> list[str]:
    """RECIPE:PRECISION of all shipped recipes, and some of them compiled."""
    compiled = [f"{recipe}:{precisions[0]}:compiled" for recipe in COMPILED]
    return [f"{recipe}:{precision}" for recipe in recipes() for precision in precisions] + compiled


def train(case: str, folder: Path, steps: int, *more: str) -> float:
    """Train a case in a new run folder; the validation loss in nats after the last step."""
    recipe, precision, *compiled = case.split(":")
    words = (
        *DATA.get(recipe, (TEXTS,)), f"train.steps={steps}", f"runtime.device={device()}",
        f"runtime.precision={precision}",
        f"runtime.compile={'true' if compiled else 'false'}", "eval.every_steps=null", "eval.translations=4",
        "eval.baseline=false",
        "checkpoint.keep_last=1", "log.samples=0", "train.time=null",
        "train.epochs=null", "generate.max_new_tokens=8", *sizes_of(recipe),
    )  # fmt: skip
    return float(minitf("pretrain", recipe, *words, *more, "-d", str(folder))["metrics"]["val.loss"])


def sizes_of(recipe: str) -> tuple[str, ...]:
    """The overrides for steps of about STEP_TOKENS tokens, and for less dropout."""
    from mini_tf.recipe import reading

    shipped = reading.read(recipe).recipe
    train, dropout = shipped.train, f"model.dropout_rate={min(MOST_DROPOUT, shipped.model.dropout_rate)}"
    if train.batch_tokens is not None:
        return f"train.batch_tokens={max(STEP_TOKENS, train.context)}", dropout
    return f"train.batch_size={max(1, STEP_TOKENS // train.context)}", dropout


def use(recipe: str, folder: Path) -> None:
    """Evaluate, predict or generate, and draw with a trained run. Raises Failed."""
    on = ("--device", device())
    minitf("evaluate", str(folder), *on)
    command, text = COMMANDS.get(recipe, ("generate", TEXT))
    minitf(*command.split(), str(folder), text, *on)
    picture = folder / "picture.png"
    minitf(*PICTURES.get(recipe, "inspect-attention").split(), str(folder), TEXT, *on, "-o", str(picture))
    if picture.stat().st_size < SMALLEST_PICTURE:
        raise Failed(f"{picture.name} of {picture.stat().st_size} bytes")


def run(case: str, steps: int) -> dict[str, Any]:
    """The figures of one case."""
    began = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="minitf-correctness-"))
    try:
        loss = train(case, folder / "run", steps)
        trained = time.perf_counter()
        use(case.split(":")[0], folder / "run")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"loss": loss, "train_seconds": trained - began, "seconds": time.perf_counter() - began}


def measure(steps: int, keys: Sequence[str]) -> None:
    """Report each case; a fault is told, and the next case follows."""
    known = known_losses()
    for case in keys:
        try:
            figures = run(case, steps)
            tell(
                case, **figures, **compared(figures["loss"], known.get(case.split(":")[0]) if steps == STEPS else None)
            )
        except Exception as error:
            tell(case, failed=reason(error))
            if spoiled():
                sys.exit(RESTART)


def spoiled() -> bool:
    """Whether a fault of the GPU (an illegal address, an assertion) has left this process without it."""
    import torch

    try:
        torch.zeros(1, device=device()).item()
    except RuntimeError:
        return True
    return False


def compared(loss: float, known: float | None) -> dict[str, Any]:
    """The CPU's loss beside this one; `failed` where it is not finite, or not near."""
    if not math.isfinite(loss):
        return {"failed": f"loss {loss}"}
    if known is None:
        return {"cpu_loss": None}
    far = abs(loss - known) > max(SHARE * abs(known), SLACK)
    return {"cpu_loss": known} | ({"failed": f"loss {loss:.4f}, on a CPU {known:.4f}"} if far else {})


def known_losses() -> dict[str, float]:
    """The CPU's losses, by recipes."""
    losses: dict[str, float] = json.loads(LOSSES.read_text()) if LOSSES.exists() else {}
    return losses


def reference(names: Sequence[str]) -> None:
    """Add the CPU's losses of these recipes to losses.json, or of those that it lacks."""
    for recipe in names or [name for name in recipes() if name not in known_losses()]:
        figures = run(f"{recipe}:fp32", STEPS)
        losses = sorted({**known_losses(), recipe: round(figures["loss"], 4)}.items())
        LOSSES.write_text(json.dumps(dict(losses), indent=1) + "\n")
        tell(recipe, **figures)


if __name__ == "__main__":
    if sys.argv[1] == "--reference":
        reference(sys.argv[2:])
    else:
        measure(int(sys.argv[1]), sys.argv[2:])
