"""step: milliseconds a step of all sides, in turns in one process, from the same weights and on the same batches.

    python -m tests.benchmarks.gpu.steps 12x768 [NANOGPT]

minitf is built, tuned and run by the functions that `minitf pretrain` calls, with `runtime` as `auto` chooses for a
run of minutes, on a text of random characters; the other sides get its weights and its first batches. They are the
loop a person writes: bf16 autocast, SDPA, clipping, fused AdamW, no synchronization between steps, and compiled
`torch.compile(model)`. Equal work: the losses of the first steps are the plain loop's to 0.03 nats (of an encoder,
whose masks are drawn anew at each step, the first). Memory is the most that is allocated during a step, with the side's
weights and optimizer and without those of the other sides.
"""

import copy
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mini_tf.jobs.assembling import build, load_data
from mini_tf.jobs.parts import Parts, training_of
from mini_tf.recipe import reading
from mini_tf.training.loop import train
from mini_tf.training.machine.device import resolve_setup
from mini_tf.training.optimizer import build as build_optimizer

from .. import loops, weights
from ..contest import device
from ..own import equal_recipe, shape_overrides
from ..plain import decays, plain
from ..shapes import SHAPES, Shape
from . import random_text
from .reports import OWN, PLAIN, Quiet, reason, sides_of, tell

RUN_SECONDS = 400.0
"""Of the run that minitf's settings are chosen for."""
STEP_SECONDS = {"12x768": 0.042, "6x384": 0.0065, "encoder": 0.0072}
"""Of plain torch on an H200, to say how many steps such a run has."""
ROUNDS, ROUND_SECONDS = 5, 0.6
WARM_UP, LEAST = 6, 3
N_BATCHES = 8
BACKENDS = {"cuda": "inductor", "cpu": "aot_eager"}
"""A CPU is for tests of this file, and its compiler takes longer than all of them."""
MIB = 2**20

Losses = Iterator[Tensor | float]
"""Makes one step for each loss it gives; a tensor is on the device still."""


def parts_of(name: str, folder: Path, reporter: Quiet) -> Parts:
    """Model, task, data and settings as `minitf pretrain` makes them."""
    shape = SHAPES[name]
    text, tokenizer = random_text.write(folder, shape.vocabulary, (N_BATCHES + 2) * shape.batch * (shape.context + 1))
    steps = int(RUN_SECONDS / STEP_SECONDS[name]) if name in STEP_SECONDS else 1000
    auto = [f"{key}=auto" for key in ("runtime.precision", "runtime.compile", "train.micro_batch_size")]
    data = [f"data.train={text}", "data.split=tail 10%", f"tokenizer={{path: {tokenizer}}}"]
    words = [*shape_overrides(shape), *auto, *data, f"train.steps={steps}", f"runtime.device={device()}"]
    recipe = reading.read(str(equal_recipe(shape)), words).recipe
    return build(recipe, load_data(recipe, reporter), resolve_setup(recipe.runtime), reporter.detail)


def batches_of(parts: Parts) -> list[loops.Batch]:
    """The rows of the first steps: ids (B, L), labels (T,) and the flat positions (T,) that they belong at."""
    feed = training_of(
        parts, (), build_optimizer(parts.recipe.optimizer, parts.trainable, parts.setup.compute_dtype, parts.sharding)
    ).feed
    return [joined(feed.micro_batches(step)) for step in range(loops.N_LOSSES)]


def joined(micro_batches: list[Any]) -> loops.Batch:
    ids, labels, at, begin = [], [], [], 0
    for batch in micro_batches:
        n = batch.inputs.ids.numel()
        places = torch.arange(n) if batch.target_positions is None else batch.target_positions
        ids, labels, at = [*ids, batch.inputs.ids], [*labels, batch.labels], [*at, places + begin]
        begin += n
    return torch.cat(ids).contiguous(), torch.cat(labels), torch.cat(at)


def minitf(parts: Parts) -> Losses:
    optimizer = build_optimizer(parts.recipe.optimizer, parts.trainable, parts.setup.compute_dtype, parts.sharding)
    for report in train(training_of(parts, (), optimizer)):
        yield report.loss


def loop(model: nn.Module, loss_of: loops.LossOf, batches: list[loops.Batch]) -> Losses:
    """Forward and backward pass, clipping and AdamW."""
    model.to(device()).train()
    on_device = [[tensor.to(device()) for tensor in batch] for batch in batches]
    optimizer = torch.optim.AdamW(decays(model), lr=loops.LR, betas=loops.BETAS, fused=True)
    for ids, labels, at in cycle(on_device):
        with torch.autocast(device(), torch.bfloat16, enabled=device() != "cpu"):
            loss = loss_of(ids, labels, at)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), loops.CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach()


def losses_of(side: str, shape: Shape, reference: nn.Module, batches: list[loops.Batch], nanogpt: Path) -> Losses:
    """The loop of a side other than minitf's."""
    compiled = torch.compile if side.endswith("compiled") else lambda model, backend: model
    if side.startswith(PLAIN):
        model = copy.deepcopy(reference)
        return loop(model, compiled(model, backend=BACKENDS[device()]), batches)
    model, _ = loops.nanogpt(shape, reference, nanogpt)
    called = compiled(model, backend=BACKENDS[device()])
    return loop(model, lambda ids, labels, at: called(ids, labels.view_as(ids))[1], batches)


@dataclass
class Side:
    """first: losses of its first steps. memory: bytes. rounds: seconds per step."""

    losses: Losses
    first: list[float]
    memory: int
    rounds: list[float] = field(default_factory=list)

    @classmethod
    def warm(cls, losses: Losses, allocated: int) -> "Side":
        """The side after its first steps. allocated: bytes before it was made."""
        first = [float(next(losses)) for _ in range(loops.N_LOSSES)]
        steps(losses, WARM_UP)
        if device() == "cpu":
            return cls(losses, first, 0)
        torch.cuda.reset_peak_memory_stats()
        steps(losses, LEAST)
        return cls(losses, first, torch.cuda.max_memory_allocated() - allocated)

    def time(self, seconds: float) -> None:
        """Add a round of about so many seconds."""
        self.rounds.append(steps(self.losses, max(LEAST, round(seconds / self.estimate))))

    @property
    def estimate(self) -> float:
        return statistics.median(self.rounds) if self.rounds else steps(self.losses, LEAST)


@contextmanager
def kernels_of(side: str) -> Iterator[None]:
    """torch's deterministic kernels, which minitf chooses for the whole process, for minitf alone."""
    chosen = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(chosen and side == OWN)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(chosen)


def steps(losses: Losses, n: int) -> float:
    """Seconds per step of `n` steps, whose work on the device has ended."""
    synchronize()
    began = time.perf_counter()
    for _ in range(n):
        next(losses)
    synchronize()
    return (time.perf_counter() - began) / n


def synchronize() -> None:
    if device() != "cpu":
        torch.cuda.synchronize()


def allocated() -> int:
    """Bytes of tensors on the device now, after what is free was returned to it."""
    gc.collect()
    if device() == "cpu":
        return 0
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated()


def measure(name: str, nanogpt: Path | None, rounds: int = ROUNDS, seconds: float = ROUND_SECONDS) -> None:
    """Report each side after each round; one that fails once, with the reason."""
    shape, reporter = SHAPES[name], Quiet()
    with tempfile.TemporaryDirectory(prefix="minitf-steps-") as folder:
        before, began = allocated(), time.perf_counter()
        parts = parts_of(name, Path(folder), reporter)
        chosen = time.perf_counter() - began
        reference, batches = (
            plain(shape),
            batches_of(parts)[: 1 if shape.masked else loops.N_LOSSES],
        )  # equal sizes: compiled once
        weights.copy(reference, parts.model, weights.MINITF_BERT if shape.masked else weights.MINITF_GPT)
        with kernels_of(PLAIN):
            expected = [
                float(loss) for loss in islice(losses_of(PLAIN, shape, reference, batches, Path()), len(batches))
            ]
        sides: dict[str, Side] = {}
        for side in sides_of(name, nanogpt is not None):
            try:
                held = before if side == OWN else allocated()
                losses = minitf(parts) if side == OWN else losses_of(side, shape, reference, batches, nanogpt or Path())
                with kernels_of(side):
                    opened = Side.warm(losses, held)
                weights.check_equal(opened.first, expected, side)
                sides[side] = opened
            except Exception as error:  # the other sides are measured without it
                tell(f"{name}:{side}", failed=reason(error))
        choice = {"choice": parts.setup.describe(), "choosing_seconds": chosen}
        for turn in range(rounds):
            for side, opened in [*sides.items()][:: -1 if turn % 2 else 1]:
                with kernels_of(side):
                    opened.time(seconds)
                report(f"{name}:{side}", shape, opened, choice if side == OWN else {})


def report(key: str, shape: Shape, side: Side, more: dict[str, Any]) -> None:
    step = statistics.median(side.rounds)
    tell(
        key, value=shape.tokens / step, ms=1000 * step, rounds_ms=[round(1000 * taken, 4) for taken in side.rounds],
        flops=shape.flops / step, memory_mib=side.memory / MIB, losses=side.first, **more,
    )  # fmt: skip


if __name__ == "__main__":
    measure(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None)
