"""`minitf runs list`: one line per run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mini_tf.cli.runs.run_facts import HEADERS, row_of, summary
from mini_tf.cli.terminal.console import Console, command

FEWEST = 6
"""Columns shown on any terminal."""


@command
def list_(
    console: Console,
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="A folder of runs.")] = Path("outputs"),
) -> None:
    from mini_tf.drawing.terminal import table
    from mini_tf.run import finding, manifest
    from mini_tf.system.errors import RunFault

    if directory != finding.OUTPUTS and not directory.is_dir():
        raise RunFault(f"no such folder: {directory}", where=[str(directory)])
    found: list[dict[str, Any]] = []
    for folder in finding.list_runs(directory):
        try:
            found.append(summary(folder, manifest.read(folder)))
        except RunFault as fault:
            console.warn(fault.message)
    if not found:
        console.say(f"no runs in {directory}; `minitf pretrain` creates one")
    else:
        rows = [row_of(facts) for facts in found]
        used = _fitting(rows, console.width)
        console.show(table, [HEADERS[n] for n in used], [[row[n] for n in used] for row in rows])
    console.output(result=found)


def _fitting(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Indices of the non-empty columns that fit into the width, the first ones."""
    sizes = {
        n: max(len(HEADERS[n]), *(len(row[n]) for row in rows))
        for n in range(len(HEADERS))
        if any(row[n] for row in rows)
    }
    while len(sizes) > FEWEST and sum(sizes.values()) + 2 * (len(sizes) - 1) > width:
        sizes.popitem()
    return [*sizes]
