"""`minitf inspect crash`: replay of the step that diverged."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import RUN
from mini_tf.system.errors import RunFault
from mini_tf.system.numbers import counted

if TYPE_CHECKING:
    from mini_tf.data.datasets import TokenizedData
    from mini_tf.data.store import Tokenizers
    from mini_tf.jobs.parts import Parts
    from mini_tf.jobs.replay import CrashReport, ReplayResult
    from mini_tf.recipe.recipe import Recipe
    from mini_tf.run.diverged_step import DivergenceInfo
    from mini_tf.training.loop import Progress
    from mini_tf.training.training import Training

ROWS = 3
"""Rows of the step printed at most."""
CHARACTERS = 200
"""Characters printed per row."""
LARGE = 1e4
"""Layer outputs above this indicate divergence."""


@command
def crash(
    console: Console,
    run: RUN,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="DEVICE", help="cpu, cuda, cuda:N or mps.", show_default="the run's"),
    ] = None,
) -> None:
    from mini_tf.data.store import Tokenizers
    from mini_tf.data.tokenized import reopen
    from mini_tf.drawing.terminal import sentence
    from mini_tf.jobs.replay import replay_step
    from mini_tf.run import manifest
    from mini_tf.run.diverged_step import read_info
    from mini_tf.run.finding import find, state_of
    from mini_tf.trained.opening import read_recipe_and_tokenizers

    folder = find(run)
    info, record = read_info(folder), manifest.read(folder)
    recipe, tokenizer, source_tokenizer = read_recipe_and_tokenizers(folder)
    used = Tokenizers(source_tokenizer, tokenizer)
    data = reopen(recipe.data, used, recipe.objective, record.hashes, console.detail)
    if not data.hashes.items() <= record.hashes.items():
        message = f"the data of {folder} has changed since training, so the step cannot be replayed"
        raise RunFault(message, where=[str(folder)])
    parts = _build(folder, recipe, data, info, device)
    training, start = _before(folder, parts, record.extensions)
    findings = replay_step(training, start)
    micro = None if info.micro_batch is None else info.micro_batch - 1
    same = (findings.outcome.what, findings.outcome.micro) == (info.what, micro)
    read = _read(training, start.step, findings.outcome.micro, used)
    advice = list(_advice(findings, recipe))
    if record.state != "diverged":
        console.show(sentence, f"the run was continued after that step; its state is {state_of(folder, record)}")
    _draw(console, info, parts, findings, same, read, advice)
    replay = {
        "state": state_of(folder, record),
        "reproduced": same,
        "device": str(parts.setup.device),
        "rows": [{"row": row, "text": text} for row, text in read],
    }
    console.output(run=folder, result={"diverged": info.model_dump(), **replay, **asdict(findings), "advice": advice})


def _build(
    folder: Path, recipe: "Recipe", data: "TokenizedData", info: "DivergenceInfo", device: str | None
) -> "Parts":
    """The run's components in the setup of the process that diverged, or on another device."""
    from mini_tf.jobs.assembling import build
    from mini_tf.training.machine.device import resolve_setup

    runtime = recipe.runtime if device is None else recipe.runtime.model_copy(update={"device": device})
    setup = resolve_setup(runtime, info.setup.model_dump(), "--device" if device else "runtime.device")
    return build(recipe, data, setup, resumed=folder)


def _before(folder: Path, parts: "Parts", extensions: list[tuple[int, int]]) -> "tuple[Training, Progress]":
    """The state of training before the step."""
    from mini_tf.jobs.parts import training_of
    from mini_tf.nn import state
    from mini_tf.run import diverged_step
    from mini_tf.run.tensors import specs
    from mini_tf.training.loop import Progress
    from mini_tf.training.optimizer import build as build_optimizer

    kept = diverged_step.read(folder, specs(parts.model.weights()), specs(parts.objective_tensors()))
    parts.load(kept.model, kept.objective)
    optimizer = build_optimizer(parts.recipe.optimizer, parts.trainable, parts.setup.compute_dtype)
    training = training_of(parts, extensions, optimizer)
    try:
        return training, Progress.of(kept.info.counters, state.unflatten(kept.state))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        path = folder / diverged_step.FOLDER
        reason = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise RunFault(f"{path} is damaged: {reason}", where=[str(path)]) from error


def _read(training: "Training", step: int, micro: int | None, used: "Tokenizers") -> list[tuple[int, str]]:
    """The rows (numbered from 1) of the step, or of its micro-batch, as text; pairs as source => target."""
    source_tokenizer, tokenizer = used
    feed = training.feed
    chosen = feed.plan.rows(step)
    places = range(len(chosen.rows)) if micro is None else range(*feed.bounds(len(chosen.rows))[micro])
    texts = []
    for i in places:
        rows = feed.packing.take(chosen.rows[i : i + 1], int(chosen.epochs[i]), chosen.keys[i : i + 1])
        source = "" if rows.source is None else f"{source_tokenizer.decode(rows.source.ids[0])} => "
        texts.append((int(chosen.rows[i]) + 1, source + tokenizer.decode(rows.ids[0])))
    return texts


def _draw(
    console: Console,
    info: "DivergenceInfo",
    parts: "Parts",
    findings: "CrashReport",
    same: bool,
    read: list[tuple[int, str]],
    advice: list[str],
) -> None:
    from mini_tf.drawing.labels import caption
    from mini_tf.drawing.terminal import sentence, table

    setup = parts.setup
    console.show(sentence, info.message)
    console.show(sentence, f"replayed on {setup.device} in {setup.precision}: {_ended(findings.outcome, same)}")
    for line in _origin(findings, parts):
        console.show(sentence, line)
    rows = [
        [level.module, level.kind, f"{level.largest:.3g}", str(level.not_finite), f"{level.weight:.3g}"]
        for level in findings.levels
    ]
    console.show(table, ["layer", "module", "max |output|", "not finite", "max |weight|"], rows)
    for number, text in read[:ROWS]:
        console.show(sentence, f'row {number}: "{caption(text[:CHARACTERS])}"')
    if len(read) > ROWS:
        console.show(sentence, f"and {len(read) - ROWS} more rows (--json has all)")
    for line in advice:
        console.show(sentence, f"try: {line}")


def _ended(outcome: "ReplayResult", same: bool) -> str:
    if same:
        return "it diverges again in the same way"
    if outcome.what is None:
        return f"it does not diverge again: loss {outcome.loss:.4g}, gradient norm {outcome.grad_norm:.4g}"
    return f"it diverges differently: {outcome.what}"


def _origin(findings: "CrashReport", parts: "Parts") -> Iterator[str]:
    """Where non-finite values begin: weights, forward or backward pass; and whether fp32 is finite."""
    if findings.weights:
        yield f"not finite before the step: {', '.join(findings.weights[:5])}"
    if (source := findings.source) is not None:
        largest_input = f"; largest |input| {source.went_in:.3g}" if source.went_in is not None else ""
        yield (
            f"first non-finite output: {source.module} ({source.kind}), micro-batch {source.micro + 1}: "
            f"{source.share:.2%} of its values{largest_input}"
        )
    elif findings.gradients:
        first, others = findings.gradients[0], len(findings.gradients) - 1
        more = f", and {counted(others, 'further parameter')}" if others else ""
        yield (
            f"the forward pass is finite; first non-finite gradient: {first.parameter}, micro-batch {first.micro + 1}: "
            f"{first.share:.2%} of its values{more}"
        )
    elif findings.outcome.what is not None and not math.isfinite(findings.outcome.grad_norm):
        yield "all values and gradients are finite, but the gradient norm overflows"
    if (wide := findings.in_fp32) is not None:
        ending = f"finite, with a loss of {wide.loss:.4g}" if wide.what is None else f"not finite either: {wide.what}"
        yield f"in fp32 instead of {parts.setup.precision} the step is {ending}"


def _advice(findings: "CrashReport", recipe: "Recipe") -> Iterator[str]:
    """Settings to try, the most promising first."""
    optimizer, schedule = recipe.optimizer, recipe.schedule
    if findings.in_fp32 is not None and findings.in_fp32.what is None:
        yield "runtime.precision=fp32, in which this step is finite"
    slower = f"a lower optimizer.lr (it is {optimizer.lr:g})"
    gentler = "optimizer.clip=1 (gradients are not clipped)"
    if optimizer.clip:
        gentler = f"a smaller optimizer.clip (it is {optimizer.clip:g})"
    longer = "schedule.warmup=5% (there is none)" if not schedule.warmup else "a longer schedule.warmup"
    if any(level.largest > LARGE for level in findings.levels):
        yield f"{slower}, {longer}, {gentler}: layer outputs exceed {LARGE:g}"
    else:
        yield f"{slower}, {longer} or {gentler}"
    outcome = findings.outcome
    if outcome.what is not None and math.isfinite(outcome.loss) and math.isfinite(outcome.grad_norm):
        yield f"a higher train.stop_above (it is {recipe.train.stop_above:g}), if such a loss is expected"
    elif outcome.what is not None and recipe.train.on_nonfinite == "stop":
        yield "train.on_nonfinite=skip, which skips such steps, if only the data of this step causes it"
