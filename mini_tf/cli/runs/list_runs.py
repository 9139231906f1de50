"""`minitf runs list`: the runs of a folder, a line each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mini_tf.cli.runs.run_facts import HEADERS, row_of, summary
from mini_tf.cli.terminal.console import Console, command

FEWEST = 6
"""Columns that are shown however narrow the terminal: as far as the loss and its unit."""


@command
def list_(console: Console, directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder of runs.")] = Path("outputs")) -> None:
    """One line per run: recipe, date, parameters, state, minutes, and figures with their unit."""
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
        console.say(f"no runs in {directory}; `minitf pretrain` makes one")
    else:
        rows = [row_of(facts) for facts in found]
        used = _fitting(rows, console.width)
        console.show(table, [HEADERS[n] for n in used], [[row[n] for n in used] for row in rows])
    console.output(result=found)


def _fitting(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns that hold something, without the last ones where they would not fit into the width."""
    sizes = {n: max(len(HEADERS[n]), *(len(row[n]) for row in rows)) for n in range(len(HEADERS)) if any(row[n] for row in rows)}
    while len(sizes) > FEWEST and sum(sizes.values()) + 2 * (len(sizes) - 1) > width:
        sizes.popitem()
    return [*sizes]
