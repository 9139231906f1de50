"""`minitf runs rm`: remove run folders."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from mini_tf.cli.terminal.completion import run_names
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.loading import at_terminal
from mini_tf.cli.terminal.streams import write_stderr
from mini_tf.system.errors import UsageFault
from mini_tf.system.safe_text import safe_text

RUNS = Annotated[
    list[str],
    typer.Argument(metavar="RUN ...", help="Runs: folders, names in outputs/, or `last`.", autocompletion=run_names),
]
YES = typer.Option("--yes", "-y", help="Remove without asking.")


@command
def remove(console: Console, runs: RUNS, yes: Annotated[bool, YES] = False) -> None:
    from mini_tf.run import finding, manifest, removing

    folders = removing.removable(runs)
    facts = []
    for folder in folders:
        size = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
        facts.append({"folder": str(folder), "bytes": size})
        console.say(f"{folder}: {finding.state_of(folder, manifest.read(folder))}, {size / 1e6:,.1f} MB")
        if later := removing.initialized_from(folder):
            console.say(f"initialized from it: {', '.join(later)}")
    if not yes and not _confirmed(folders):
        console.say("nothing was removed")
        console.output(result=[])
        return
    with at_terminal("removing"):
        removing.remove(folders)
    console.say(f"removed: {', '.join(folder.name for folder in folders)}")
    console.output(result=facts)


def _confirmed(folders: list[Path]) -> bool:
    """Whether the person at the terminal agrees; UsageFault if there is none."""
    if not sys.stdin.isatty():
        raise UsageFault("`minitf runs rm` asks first, but stdin is no terminal", hint="--yes removes without asking")
    what = safe_text(folders[0].name) if len(folders) == 1 else f"these {len(folders)} runs"
    write_stderr(f"remove {what}? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
