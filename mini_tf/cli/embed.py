"""`minitf embed`: vectors of texts as a NumPy file, and the nearest texts by cosine similarity."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.terminal import files
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT
from mini_tf.cli.terminal.loading import TEXTS, at_terminal, check_texts, open_model
from mini_tf.cli.terminal.options import AVERAGE, DEVICE, RUN, STEP, io_option
from mini_tf.recipe.text_input import read_lines
from mini_tf.system.errors import DataFault, UsageFault
from mini_tf.system.numbers import counted

if TYPE_CHECKING:
    import numpy as np

INPUT = io_option("-i", "--input", metavar="FILE", help="Read texts from the lines of a file; empty ones are skipped.")
NEIGHBORS = typer.Option(
    "--neighbors", "--neighbours", metavar="N", min=1, help="Print the N nearest texts of each.", show_default=False
)
AMONG = io_option("--among", metavar="FILE", help="Neighbors are lines of this file.", show_default="the other texts")
NORMALIZE = typer.Option("--normalize", help="Vectors of length 1; neighbors are the same.")
ROWS = 4096
"""Texts whose similarities are computed at once."""


@command
def embed(
    console: Console,
    run: RUN,
    texts: TEXTS = None,
    input: Annotated[Path | None, INPUT] = None,
    neighbors: Annotated[int | None, NEIGHBORS] = None,
    among: Annotated[Path | None, AMONG] = None,
    normalize: Annotated[bool, NORMALIZE] = False,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    average: AVERAGE = None,
    device: DEVICE = "auto",
) -> None:
    check_texts(texts, input)
    if among is not None and neighbors is None:
        raise UsageFault(f"--among {among}: used without --neighbors", hint="--neighbors 5 prints the 5 nearest")
    named = files.check(output, (".npy", ".json"), force)
    if not named and neighbors is None and not console.json:
        raise UsageFault("vectors need a file", hint="-o vectors.npy; or --neighbors 5, or --json")
    queries = [*texts] if texts else _lines(input)
    candidates = queries if among is None else _lines(among)
    if neighbors is not None and among is None and len(queries) < 2:
        raise UsageFault("a single text has no neighbors", hint="give more texts, or --among FILE")

    trained = open_model(run, step, device, average)
    from mini_tf.trained.text_vectors import Embedder

    embedder = Embedder(trained)
    with at_terminal(f"embedding {counted(len(queries), 'text')}"):
        vectors = embedder.embed(queries, normalize).numpy()
        others = vectors if among is None else embedder.embed(candidates).numpy()
    for note in embedder.unread.notes():
        console.say(note)
    nearest = None if neighbors is None else nearest_of(vectors, others, neighbors, among is None)
    result: dict[str, Any] = {"texts": queries, "vectors": vectors.tolist()}
    if nearest is not None:
        result["neighbors"] = [
            [{"text": candidates[n], "number": n + 1, "cosine": cosine} for n, cosine in of_text] for of_text in nearest
        ]
    files.write_all(console, named, result, lambda suffix: _npy(vectors))
    if nearest is not None and not console.json:
        _show(console, queries, candidates, nearest)
    console.output(run=trained.folder, result=result)


def nearest_of(vectors: "np.ndarray", others: "np.ndarray", n: int, same: bool) -> list[list[tuple[int, float]]]:
    """The index and the cosine similarity of the n nearest `others` (M, D) of each vector (N, D), the nearest first.

    same: both are the same texts, none of which is its own neighbor. Of equal ones the first comes first.
    """
    import numpy as np

    lengths = (np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-12) for each in (vectors, others))
    units, other_units = (each / length for each, length in zip((vectors, others), lengths, strict=True))
    neighbors = []
    for first in range(0, len(units), ROWS):
        cosines = units[first : first + ROWS] @ other_units.T
        if same:
            np.fill_diagonal(cosines[:, first:], -np.inf)
        order = np.argsort(-cosines, axis=1, kind="stable")[:, : n if not same else min(n, len(others) - 1)]
        values = np.take_along_axis(cosines, order, axis=1)
        neighbors += [[*zip(*row, strict=True)] for row in zip(order.tolist(), values.tolist(), strict=True)]
    return neighbors


def _lines(file: Path | None) -> list[str]:
    """Lines that are not empty; DataFault if there are none."""
    lines = [line for line in read_lines(file) if line.strip()]
    if not lines:
        raise DataFault(f"{file or 'stdin'} has no text", where=(str(file or "stdin"),))
    return lines


def _npy(vectors: "np.ndarray") -> bytes:
    import numpy as np

    content = io.BytesIO()
    np.save(content, vectors)
    return content.getvalue()


def _show(
    console: Console, texts: Sequence[str], candidates: Sequence[str], nearest: Sequence[Sequence[tuple[int, float]]]
) -> None:
    from mini_tf.drawing import terminal

    for text, of_text in zip(texts, nearest, strict=True):
        console.show(terminal.line, text)
        console.show(terminal.table, ["cosine", "text"], [[f"{cosine:.4f}", candidates[n]] for n, cosine in of_text])
