"""`minitf inspect positions`: what a model knows of places."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check, write_all
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.drawing.panel import Curves, Panel, Scale
    from mini_tf.inspection.positions import Seen, Untrained, Vectors
    from mini_tf.nn.model import ModelStack
    from mini_tf.trained.opening import Trained

PICTURES = (".png", ".svg")


@command
def positions(
    console: Console,
    run: RUN,
    curve: Annotated[
        bool, typer.Option("--curve", help="In a picture file: the curve over distance instead of the map of places.")
    ] = False,
    stack: Annotated[
        str | None, typer.Option("--stack", help="Of an encoder-decoder, whose positions: encoder, or decoder (the default).")
    ] = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """How alike the places are, or how scores change with distance; which rows of a table were never trained."""
    from mini_tf.inspection.positions import look, untrained
    from mini_tf.trained.opening import open_trained

    files = check(output, [*PICTURES, ".json"], force)
    trained = open_trained(run, step, device)
    chosen = _chosen(trained, stack)
    positions = trained.recipe.model.stacks()[chosen.name].positions
    kind, seen = positions.kind, look(trained.model, str(chosen.embedding))
    result = _result(kind, seen, untrained(trained.folder, step, seen))
    curves = _curves(kind, seen)
    if curves is None and (pictures := [file for file in files if file.suffix.lower() in PICTURES]):
        raise UsageFault(f"--output {pictures[0]}: {kind} positions have no curve or map to draw")
    write_all(console, files, result, lambda suffix: _picture(None if curve else seen.vectors, kind, curves, suffix))
    if curves is None:
        said = (
            "the scores they change depend on queries and keys, too"
            if positions.ATTACHES
            else "this model is not told where a token stands"
        )
        console.answer(f"positions: {kind}; {said}", run=trained.folder, result=result)
    else:
        _draw(console, kind, seen, curves, _sentences(positions.ABOUT, seen, result))
        console.answer(run=trained.folder, result=result)


def _chosen(trained: "Trained", stack: str | None) -> "ModelStack":
    """The stack of this name, by default the model's own; UsageFault where it has none such."""
    from mini_tf.inspection.positions import has_positions

    stacks = {one.attention.partition(".")[0]: one for one in trained.model.stacks() if has_positions(trained.model, one)}
    if not stacks:
        raise UsageFault(f"a model of the kind {trained.recipe.model.kind} declares no embedding whose positions could be shown")
    if stack is not None and len(stacks) == 1:
        raise UsageFault(f"--stack {stack}: a model of the kind {trained.recipe.model.kind} has one stack", hint="leave it out")
    if stack is not None and stack not in stacks:
        raise UsageFault(f"--stack {stack}: must be {' or '.join(sorted(stacks))}")
    return stacks[stack] if stack is not None else next(iter(stacks.values()))


def _result(kind: str, seen: "Seen", untrained: "Untrained | None") -> dict[str, Any]:
    result: dict[str, Any] = {"positions": kind, "context": seen.context}
    if (vectors := seen.vectors) is not None:
        similarity = vectors.similarity.tolist()
        result |= {"n_places": vectors.n_places, "places": vectors.places, "similarity": similarity, "kernel": vectors.kernel}
    if (turns := seen.turns) is not None:
        never = sum(wavelength > seen.context for wavelength in turns.wavelengths)
        result |= {"kernel": turns.kernel, "wavelengths": turns.wavelengths, "pairs_that_never_turn_once": never}
    if untrained is not None:
        result |= {"never_trained": untrained.rows, "never_trained_by": untrained.by}
    return result | ({"biases": seen.biases} if seen.biases else {})


def _panel(title: str, vectors: "Vectors", most: int) -> "Panel":
    """At most so many of the places, evenly spaced."""
    from mini_tf.drawing.panel import Panel

    step = -(-len(vectors.places) // most)
    names = [str(place) for place in vectors.places[::step]]
    values = vectors.similarity[::step, ::step].numpy()
    return Panel(title, names, names, values)


def _curves(kind: str, seen: "Seen") -> "Curves | None":
    from mini_tf.drawing.panel import Curves

    if seen.vectors is not None:
        title, y_label, lines = "weight by places alone", "softmax(p_i.p_j / sqrt d)", {"": seen.vectors.kernel}
    elif seen.turns is not None:
        title, y_label, lines = "score of two equal vectors", "mean of cos(distance * theta)", {"": seen.turns.kernel}
    elif seen.biases:
        title, y_label = "what is added to a score", "bias"
        lines = {f"head {head}": bias for head, bias in enumerate(seen.biases)}
    else:
        return None
    length = len(next(iter(lines.values())))
    return Curves(f"{kind} positions: {title}", list(range(length)), "distance", y_label, lines)


def _sentences(about: str, seen: "Seen", result: dict[str, Any]) -> list[str]:
    from mini_tf.training.divergence import ranges

    found = [about] if about else []
    if (turns := seen.turns) is not None:
        short, long = min(turns.wavelengths), max(turns.wavelengths)
        found.append(
            f"{len(turns.wavelengths)} pairs of dimensions turn once in {short:.3g} to {long:.4g} tokens; "
            f"{result['pairs_that_never_turn_once']} never turn once within the context of {seen.context}."
        )
    if (rows := result.get("never_trained")) is not None:
        said = "every row was trained" if not rows else f"never trained: {ranges(rows)}"
        found.append(f"{result['n_places']} rows; {said} (by {result['never_trained_by']}).")
    return found


def _draw(console: Console, kind: str, seen: "Seen", curves: "Curves", sentences: list[str]) -> None:
    from rich.text import Text

    from mini_tf.drawing import terminal

    colored, width = console.colored, console.width
    if seen.vectors is not None:
        panel = _panel(_title(kind), seen.vectors, (width - 8) // 2)  # a cell is two characters wide, and names stand before the rows
        console.picture(terminal.heat_map(panel, _cosines(), colored=colored, width=width))
        console.picture(Text(""))
    console.picture(terminal.curves(curves, colored=colored, width=width))
    for sentence in sentences:
        console.picture(terminal.sentence(sentence, width))


def _picture(vectors: "Vectors | None", kind: str, curves: "Curves | None", suffix: str) -> bytes:
    from mini_tf.drawing.curves import draw_curves
    from mini_tf.drawing.heat_maps import draw_panels

    if vectors is not None:
        return draw_panels([_panel("", vectors, len(vectors.places))], _cosines(), _title(kind), suffix)
    assert curves is not None, "a model without positions was refused before"
    return draw_curves(curves, suffix)


def _title(kind: str) -> str:
    return f"{kind} positions: cosine of the vectors of two places"


def _cosines() -> "Scale":
    from mini_tf.drawing.panel import Scale

    return Scale(-1.0, 1.0, diverging=True, label="cosine")
