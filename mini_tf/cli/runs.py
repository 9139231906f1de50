"""`minitf runs`: what is in the run folders. Reads them without torch."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mini_tf.cli.console import Console, command

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List and show run folders.")


@app.command("list")
@command
def list_(console: Console, directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder of runs.")] = Path("outputs")) -> None:
    """One line a run: name, state, steps, best validation loss."""
    from mini_tf.errors import RunFault
    from mini_tf.run import finding, manifest

    if directory != finding.OUTPUTS and not directory.is_dir():
        raise RunFault(f"no such folder: {directory}", where=[str(directory)])
    rows: list[dict[str, Any]] = []
    for folder in finding.list_runs(directory):
        try:
            rows.append(_summary(folder, manifest.read(folder)))
        except RunFault as fault:
            console.warn(fault.message)
    if not rows:
        console.say(f"no runs in {directory}; `minitf pretrain` makes one")
    console.answer(_table(rows) if rows else None, result=rows)


@app.command("show")
@command
def show(console: Console, run: Annotated[str, typer.Argument(metavar="RUN", help="A folder, its name in outputs, or `last`.")]) -> None:
    """How one run stands, what it was made from, and what it measured."""
    from mini_tf.run import finding, manifest, metrics

    folder = finding.find(run)
    record = manifest.read(folder)
    reports = list(metrics.read_lines(folder / "metrics.jsonl"))
    steps = sorted(int(path.name.removeprefix("step-")) for path in (folder / "checkpoints").glob("step-*"))
    facts = _summary(folder, record) | {
        "recipe": record.recipe,
        "extensions": record.extensions,
        "checkpoints": steps,
        "error": record.error,
        "seed": record.seed,
        "auto": record.auto,
        "hashes": record.hashes,
        "versions": record.versions,
        "command": record.command,
    }
    last = {key: value for report in reports for key, value in report.items() if key not in ("step", "not_finite")} | record.metrics
    lines = [f"{key:<12} {_show(value)}" for key, value in (facts | last).items() if value not in (None, [], {}, "")]
    console.answer("\n".join(lines), run=folder, metrics=last, result=facts)


def _summary(folder: Path, record: Any) -> dict[str, Any]:
    from mini_tf.run import finding

    state = finding.state_of(folder, record)
    return {
        "name": folder.name,
        "state": state,
        "step": record.step,
        "best": record.best,
        "exit_code": record.exit_code,
        "folder": str(folder),
    }


def _table(rows: list[dict[str, Any]]) -> str:
    cells = [["RUN", "STATE", "STEP", "BEST LOSS"]]
    for row in rows:
        cells.append([row["name"], row["state"], str(row["step"]), _show(row["best"]) if row["best"] else "-"])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells)


def _show(value: Any) -> str:
    match value:
        case float():
            return f"{value:.4f}"
        case {"step": step, "loss": loss}:
            return f"{loss:.4f} at step {step:.0f}"
        case dict():
            return ", ".join(f"{key} {_show(item)}" for key, item in value.items())
        case list():
            return " ".join(map(str, value))
    return str(value)
