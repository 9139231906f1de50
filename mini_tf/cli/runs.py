"""`minitf runs`: what is in the run folders. Reads them without torch."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import RUN

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List and show run folders.")


@app.command("list")
@command
def list_(console: Console, directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder of runs.")] = Path("outputs")) -> None:
    """One line a run: name, state, steps, best validation loss."""
    from mini_tf.run import finding, manifest
    from mini_tf.system.errors import RunFault

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
def show(console: Console, run: RUN) -> None:
    """How one run stands, what it was made from, and what it measured."""
    from mini_tf.run import finding, manifest, metrics
    from mini_tf.run.checkpoint import Checkpoints

    folder = finding.find(run)
    record = manifest.read(folder)
    reports = list(metrics.read_lines(folder / "metrics.jsonl"))
    seeds = [report for report in reports if "seed" in report]
    facts = _summary(folder, record) | {
        "recipe": record.recipe,
        "extensions": record.extensions,
        "checkpoints": sorted(Checkpoints.of(folder).steps()),
        "error": record.error,
        "seed": record.seed,
        "seeds": seeds,
        "auto": record.auto,
        "hashes": record.hashes,
        "versions": record.versions | {source.package: source.version for source in record.kinds.values()},
        "command": record.command,
    }
    last = {key: value for report in reports if not seeds for key, value in report.items() if key != "not_finite"}
    measured = {key: last.pop(key) for key in list(last) if key.startswith(("val.", "train."))}
    lines = _lines(facts | {"seeds": len(seeds)} if seeds else facts)
    for report in seeds:
        lines += ["", "of one seed:", *_lines(report)]
    if last:
        lines += ["", f"training, last report (step {last.pop('step', '?')}):", *_lines(last)]
    if record.metrics and seeds:
        of = next((number for number, report in enumerate(seeds, start=1) if report.get("median")), "?")
        lines += [
            "",
            f"each figure's own median over {len(seeds)} seeds (model.safetensors is that of seed-{of}):",
            *_lines(record.metrics),
        ]
    elif record.metrics and record.model:
        lines += ["", f"model.safetensors (step {record.model['step']}), over the whole held-out text:", *_lines(record.metrics)]
    elif measured or record.metrics:
        lines += ["", "last evaluation:", *_lines(measured | record.metrics)]
    console.answer("\n".join(lines), run=folder, metrics=last | measured | record.metrics, result=facts)


def _lines(values: dict[str, Any]) -> list[str]:
    return [f"{key:<12} {_show(value)}" for key, value in values.items() if value not in (None, [], {}, "")]


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
            return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.6g}"
        case {"step": step, "loss": loss}:
            return f"{loss:.4f} at step {step:.0f}"
        case dict():
            return ", ".join(f"{key} {_show(item)}" for key, item in value.items())
        case list():
            return " ".join(map(str, value))
    return str(value)
