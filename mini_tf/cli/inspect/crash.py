"""`minitf inspect crash`: the step that ended a run as diverged, done again and looked at."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import RUN
from mini_tf.system.errors import RunFault

if TYPE_CHECKING:
    from mini_tf.data.datasets import TokenizedData
    from mini_tf.data.store import Tokenizers
    from mini_tf.inspection.crash import Findings, ReplayResult
    from mini_tf.jobs.parts import Parts
    from mini_tf.recipe.recipe import Recipe
    from mini_tf.run.divergence import DivergenceInfo
    from mini_tf.training.loop import Progress, Training

ROWS = 3
"""Of the text that was read, shown at most."""
CHARACTERS = 200
"""Of each of them."""
LARGE = 1e4
"""A value above this, coming out of a layer, is far from what a sound model has."""


@command
def crash(
    console: Console,
    run: RUN,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:N or mps; else the run's own.")] = None,
) -> None:
    """The step that diverged, once more: whether it does again, where the first value comes from that is not finite, what to try."""
    from mini_tf.data.store import Tokenizers
    from mini_tf.drawing.terminal import sentence
    from mini_tf.inspection.crash import investigate
    from mini_tf.run import manifest
    from mini_tf.run.divergence import read_info
    from mini_tf.run.finding import find, state_of
    from mini_tf.trained.opening import read_made_with

    folder = find(run)
    facts, record = read_info(folder), manifest.read(folder)
    recipe, tokenizer, source_tokenizer = read_made_with(folder)
    used = Tokenizers(source_tokenizer, tokenizer)
    parts = _build(folder, recipe, _text(folder, recipe, used, record.hashes, console), facts, device)
    training, start = _before(folder, parts, record.extensions)
    findings = investigate(training, start)
    same = (findings.outcome.what, findings.outcome.micro) == (facts.what, None if facts.micro_batch is None else facts.micro_batch - 1)
    read = _read(training, start.step, findings.outcome.micro, used)
    advice = list(_advice(findings, recipe))
    if record.state != "diverged":
        console.picture(sentence, f"since that step the run was started again: it is {state_of(folder, record)}")
    _draw(console, facts, parts, findings, same, read, advice)
    replay = {
        "state": state_of(folder, record),
        "reproduced": same,
        "device": str(parts.setup.device),
        "rows": [{"row": row, "text": text} for row, text in read],
    }
    console.answer(run=folder, result={"diverged": facts.model_dump(), **replay, **asdict(findings), "advice": advice})


def _text(folder: Path, recipe: "Recipe", used: "Tokenizers", recorded: dict[str, str], console: Console) -> "TokenizedData":
    from mini_tf.data.opening import reopen

    text = reopen(recipe.data, used, recipe.objective, recorded, console.detail)
    if not text.hashes.items() <= recorded.items():
        raise RunFault(f"the text of {folder} has changed since it was trained: the step cannot be done again", where=[str(folder)])
    return text


def _build(folder: Path, recipe: "Recipe", text: "TokenizedData", facts: "DivergenceInfo", device: str | None) -> "Parts":
    """The run's parts, in the setup of the process that diverged, on another device if one is asked for."""
    from mini_tf.jobs.assembling import build
    from mini_tf.training.machine.device import settle

    runtime = recipe.runtime if device is None else recipe.runtime.model_copy(update={"device": device})
    return build(recipe, text, settle(runtime, facts.setup.model_dump(), "--device" if device else "runtime.device"), begun=folder)


def _before(folder: Path, parts: "Parts", extensions: list[tuple[int, int]]) -> "tuple[Training, Progress]":
    """Training as it stood before the step, weights and all."""
    from mini_tf.jobs.parts import training_of
    from mini_tf.nn import state
    from mini_tf.run import divergence
    from mini_tf.run.tensors import specs
    from mini_tf.training.loop import Progress
    from mini_tf.training.optimizer import build as build_optimizer

    kept = divergence.read(folder, specs(parts.model.weights()), specs(parts.own_tensors()))
    parts.load(kept.model, kept.objective)
    training = training_of(parts, extensions, build_optimizer(parts.recipe.optimizer, parts.trainable, parts.setup.products))
    try:
        return training, Progress.of(kept.info.counters, state.load(kept.state))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        path, what = folder / divergence.FOLDER, f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise RunFault(f"{path} is damaged: {what}", where=[str(path)]) from error


def _read(training: "Training", step: int, micro: int | None, used: "Tokenizers") -> list[tuple[int, str]]:
    """The rows (from 1) that the step read, or the micro-batch of it, as text; pairs as source => target."""
    source_tokenizer, tokenizer = used
    feed = training.feed
    chosen = feed.plan.rows(step)
    places = range(len(chosen.rows)) if micro is None else range(*feed.cuts(len(chosen.rows))[micro])
    texts = []
    for i in places:
        rows = feed.packing.take(chosen.rows[i : i + 1], int(chosen.epochs[i]), chosen.keys[i : i + 1])
        source = "" if rows.source is None else f"{source_tokenizer.decode(rows.source.ids[0])} => "
        texts.append((int(chosen.rows[i]) + 1, source + tokenizer.decode(rows.ids[0])))
    return texts


def _draw(
    console: Console,
    facts: "DivergenceInfo",
    parts: "Parts",
    findings: "Findings",
    same: bool,
    read: list[tuple[int, str]],
    advice: list[str],
) -> None:
    from mini_tf.drawing.labels import caption
    from mini_tf.drawing.terminal import sentence, table

    outcome = findings.outcome
    told = [facts.message, f"replayed on {parts.setup.device} in {parts.setup.precision}: {_ended(outcome, same)}"]
    told += _origin(findings, parts)
    for line in told:
        console.picture(sentence, line)
    rows = [[level.module, level.kind, f"{level.largest:.3g}", str(level.not_finite), f"{level.weight:.3g}"] for level in findings.levels]
    headers = ["layer", "what", "largest |output|", "not finite", "largest |weight|"]
    console.picture(table, headers, rows)
    for number, text in read[:ROWS]:
        console.picture(sentence, f'row {number}: "{caption(text[:CHARACTERS])}"')
    if len(read) > ROWS:
        console.picture(sentence, f"and {len(read) - ROWS} further rows (--json has them)")
    for line in advice:
        console.picture(sentence, f"try: {line}")


def _ended(outcome: "ReplayResult", same: bool) -> str:
    if same:
        return "the same happens again"
    if outcome.what is None:
        return f"it does not happen again: the loss is {outcome.loss:.4g}, the norm of the gradient {outcome.grad_norm:.4g}"
    return f"it happens otherwise: {outcome.what}"


def _origin(findings: "Findings", parts: "Parts") -> Iterator[str]:
    """Where it begins: in the weights, forward or backward; and whether half precision is to blame."""
    if findings.weights:
        yield f"not finite already before the step: {', '.join(findings.weights[:5])}"
    if (source := findings.source) is not None:
        given = f"; the largest |value| that went in is {source.went_in:.3g}" if source.went_in is not None else ""
        yield (
            f"the first output that is not finite: {source.module} ({source.kind}), micro-batch {source.micro + 1}: "
            f"{source.share:.2%} of its values{given}"
        )
    elif findings.gradients:
        first = findings.gradients[0]
        more = f", and {len(findings.gradients) - 1} further parameters" if len(findings.gradients) > 1 else ""
        yield (
            f"forward all is finite; the first gradient that is not: {first.parameter}, micro-batch {first.micro + 1}: "
            f"{first.share:.2%} of its values{more}"
        )
    elif findings.outcome.what is not None and not math.isfinite(findings.outcome.grad_norm):
        yield "every value and every gradient is finite; the gradient is so large that the sum of its squares is not"
    if (wide := findings.in_fp32) is not None:
        ending = f"finite, with a loss of {wide.loss:.4g}" if wide.what is None else f"no better: {wide.what}"
        yield f"in fp32 instead of {parts.setup.precision} the step is {ending}"


def _advice(findings: "Findings", recipe: "Recipe") -> Iterator[str]:
    """The nearest ways out, the likeliest first."""
    optimizer, schedule = recipe.optimizer, recipe.schedule
    if findings.in_fp32 is not None and findings.in_fp32.what is None:
        yield "runtime.precision=fp32, in which this step is finite"
    slower = f"a lower optimizer.lr (it is {optimizer.lr:g})"
    gentler = (
        "optimizer.clip=1 (gradients are not clipped)" if not optimizer.clip else f"a smaller optimizer.clip (it is {optimizer.clip:g})"
    )
    longer = "schedule.warmup=5% (there is none)" if not schedule.warmup else "a longer schedule.warmup"
    if any(level.largest > LARGE for level in findings.levels):
        yield f"{slower}, {longer}, {gentler}: what comes out of the layers has grown beyond {LARGE:g}"
    else:
        yield f"{slower}, {longer} or {gentler}"
    outcome = findings.outcome
    if outcome.what is not None and math.isfinite(outcome.loss) and math.isfinite(outcome.grad_norm):
        yield f"a higher train.stop_above (it is {recipe.train.stop_above:g}), where such a loss is no fault"
    elif outcome.what is not None and recipe.train.on_nonfinite == "stop":
        yield "train.on_nonfinite=skip, which leaves such a step out, if it is the text of one step that does it"
