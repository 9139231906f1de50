"""`minitf inspect simple`: attention without parameters, step by step; needs no run."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.lines import refuse_broken
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.inspection.simple import Walk

MOST_WORDS = 12


@command
def simple(console: Console, text: Annotated[str, typer.Argument(metavar="TEXT", help="A few words.")] = "I love bears") -> None:
    """Attention without parameters, softmax(X X^T) X, step by step: vectors, scores, weights, outputs."""
    from mini_tf.inspection.simple import AXES, walk

    refuse_broken([text], "the text")
    words = text.split()
    if not 0 < len(words) <= MOST_WORDS:
        raise UsageFault(f"TEXT has {len(words)} words; a walk-through takes 1 to {MOST_WORDS}")
    steps = walk(words)
    notes = [f"drawn from their characters, not made by hand: {', '.join(map(repr, steps.drawn))}"] if steps.drawn else []
    _draw(console, steps)
    for note in notes:
        console.say(note)
    result: dict[str, Any] = {"words": words, "axes": AXES}
    result |= {name: getattr(steps, name).tolist() for name in ("vectors", "scores", "weights", "outputs")}
    console.answer(result=result | {"before": steps.before, "after": steps.after, "drawn": steps.drawn, "notes": notes})


def _draw(console: Console, steps: "Walk") -> None:
    from rich.text import Text

    from mini_tf.drawing.labels import label
    from mini_tf.drawing.terminal import table
    from mini_tf.inspection.simple import AXES

    names = [label(word, 16) for word in steps.words]
    for title, columns, values in (
        ("Each word has a vector: X", [*AXES], steps.vectors),
        ("Every two words are compared by the product of their vectors: scores X X^T", names, steps.scores),
        ("In each row a softmax makes weights of the scores, which sum to 1: A", names, steps.weights),
        ("Each word becomes the mean of all vectors, by its weights: A X", [*AXES], steps.outputs),
        (
            "How near each word is to the mean of the others (cosine)",
            ["before", "after"],
            list(zip(steps.before, steps.after, strict=True)),
        ),
    ):
        rows: list[list[str | float | None]] = [[name, *map(float, row)] for name, row in zip(names, values, strict=True)]
        console.picture(Text(title))
        console.picture(table(["", *columns], rows, colored=console.colored, width=console.width))
        console.picture(Text(""))
    if len(names) > 1 and not console.json:
        before, after = steps.before[-1], steps.after[-1]
        moved = "moved towards" if after > before else "did not move towards"
        console.print_product(f"{names[-1]} {moved} its neighbours: {before:.2f} before, {after:.2f} after.")
