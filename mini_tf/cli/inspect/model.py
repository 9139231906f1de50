"""`minitf inspect model`: what a run's model is made of, and what it costs."""

from typing import TYPE_CHECKING, Any

from mini_tf.cli.console import Console, command
from mini_tf.cli.numbers import in_bytes, short
from mini_tf.cli.options import RUN, STEP

if TYPE_CHECKING:
    from mini_tf.inspection.parameters import Memory, Part, Work


@command
def model(console: Console, run: RUN, step: STEP = None) -> None:
    """Parameters by part, floating-point operations a token, bytes of memory."""
    from mini_tf.inspection.parameters import folded, memory_of, parts_of, work_of
    from mini_tf.run.trained import open_trained

    trained = open_trained(run, step, device="cpu")  # the numbers are the same everywhere, and counted there
    settings = trained.recipe.model
    parts = parts_of(trained.model)
    total = sum(part.parameters for part in parts)
    work, memory = work_of(trained.model), memory_of(trained.model, trained.recipe.optimizer, settings.READS == "left")
    facts = {
        "kind": settings.kind,
        "attention": [mixer.kind for mixer in getattr(settings, "attention", ())],
        "positions": getattr(getattr(settings, "positions", None), "kind", None),
        "context": trained.model.context,
        "vocabulary": trained.tokenizer.vocabulary.size,
    }
    _draw(console, facts, folded(parts), total)
    result = {
        **facts,
        "parameters": total,
        "parts": [_record(part, total) for part in parts],
        "flops": {"length": work.length, "forward": work.forward, "of_which_scores": work.scores, "training": work.training},
        "memory": vars(memory),
    }
    metrics = {"parameters": total, "flops_per_token": work.forward}
    console.answer("\n".join(_cost(work, memory)), run=trained.folder, metrics=metrics, result=result)


def _record(part: "Part", total: int) -> dict[str, Any]:
    fields = {name: value for name, value in vars(part).items() if name != "times"}
    return fields | {"share": part.parameters / total}


def _draw(console: Console, facts: dict[str, Any], parts: "list[Part]", total: int) -> None:
    from rich.text import Text

    from mini_tf.drawing.terminal import table

    attention = " ".join(facts["attention"])
    lines = [f"{facts['kind']} · attention {attention} · positions {facts['positions']}"]
    lines += [f"context {facts['context']:,} tokens · vocabulary {facts['vocabulary']:,}", ""]
    console.picture(Text("\n".join(lines)))
    rows = []
    for part in parts:
        name = part.name.removeprefix("stack.").removesuffix(".part")
        shapes = ["×".join(map(str, shape)) for shape in part.shapes.values()]
        shapes += [f"as {part.tied}"] if part.tied else []
        what = f"{part.times} × {part.kind}" if part.times > 1 else part.kind
        rows.append([name, what, f"{part.parameters:,}", f"{part.parameters / total:.1%}", " ".join(shapes)])
    rows.append(["in all", "", f"{total:,}", "100.0%", ""])
    headers = ["part", "what", "parameters", "share", "shapes of each"]
    console.picture(table(headers, rows, colored=console.colored, width=console.width))


def _cost(work: "Work", memory: "Memory") -> list[str]:
    lines = [
        "",
        f"work      {short(work.forward)}FLOP a token, {short(work.scores)}FLOP of it for scores over the vocabulary",
        f"          {short(work.training)}FLOP a token in training; on texts of {work.length:,} tokens, all scored",
        f"memory    {in_bytes(memory.weights)} of weights; in training {in_bytes(memory.training)} with gradients",
        "          and the optimizer's moments, and what the batch needs",
    ]
    if memory.state is None:
        return [*lines, "state     none: it reads both sides, so a text is read as a whole"]
    grown = f"{in_bytes(memory.state_per_token)} a token" if memory.state_per_token else "which no longer grows"
    return [*lines, f"state     {in_bytes(memory.state)} a text of {work.length:,} tokens, {grown}"]
