"""`minitf runs list`, `show` and `rm`, and the facts about a run that these and `compare` print."""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from mini_tf.cli.terminal.completion import run_names
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.loading import at_terminal
from mini_tf.cli.terminal.options import RUN
from mini_tf.cli.terminal.streams import write_stderr
from mini_tf.system.errors import UsageFault
from mini_tf.system.numbers import short
from mini_tf.system.safe_text import safe_text


def summary(folder: Path, record: Any) -> dict[str, Any]:
    """The facts of a run by their names in JSON. record: its manifest."""
    from mini_tf.run import finding

    metrics = record.metrics
    figure = next((name for name in record.figures if metrics.get(name) is not None), None)
    return {
        "name": folder.name,
        "recipe": record.recipe,
        "state": finding.state_of(folder, record),
        "date": time.strftime("%Y-%m-%d", time.localtime(record.started)) if record.started else None,
        "parameters": record.parameters or None,
        "step": record.step,
        "minutes": metrics.get("minutes"),
        "val.loss": metrics.get("val.loss"),
        "loss_unit": record.loss_unit or None,
        "figure": None if figure is None else {figure: metrics[figure]},
        "best": record.best,
        "exit_code": record.exit_code,
        "folder": str(folder),
    }


def model_facts(folder: Path) -> dict[str, Any]:
    """The size of the vocabulary that the tokenizer has, and the model that training started from; None if unknown."""
    import yaml

    facts: dict[str, Any] = {"vocabulary": None, "model.init_from": None}
    with suppress(OSError, ValueError, TypeError, KeyError):
        facts["vocabulary"] = json.loads((folder / "config.json").read_text())["vocabulary_size"]
    with suppress(OSError, yaml.YAMLError, TypeError, KeyError):
        facts["model.init_from"] = yaml.safe_load((folder / "resolved.yaml").read_text())["model"].get("init_from")
    return facts


HEADERS = ("run", "recipe", "state", "step", "val.loss", "unit", "metric", "params", "min", "date")
"""On a narrow terminal the last columns are left out."""


def row_of(facts: dict[str, Any]) -> list[str]:
    """A run's cells under HEADERS; an unfinished run has its lowest loss so far."""
    loss = facts["val.loss"] if facts["val.loss"] is not None else (facts["best"] or {}).get("loss")
    figure = next((f"{name.removeprefix('val.')} {value:.4f}" for name, value in (facts["figure"] or {}).items()), "")
    return [
        facts["name"],
        facts["recipe"],
        facts["state"],
        str(facts["step"]),
        "" if loss is None else f"{loss:.4f}",
        (facts["loss_unit"] or "").replace("nats per ", "nats/") if loss is not None else "",
        figure,
        "" if facts["parameters"] is None else short(facts["parameters"]).replace(" ", ""),
        "" if facts["minutes"] is None else f"{facts['minutes']:.1f}",
        facts["date"] or "",
    ]


def read_lines(values: dict[str, Any]) -> list[str]:
    """One line per value that is set, with aligned values."""
    texts = {key: shown(value) for key, value in values.items() if value not in (None, [], {}, "")}
    width = max([12, *map(len, texts)])
    return [f"{key:<{width}} {text}" for key, text in texts.items()]


def shown(value: Any) -> str:
    match value:
        case float():
            return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.6g}"
        case {"step": step, "loss": loss}:
            return f"{loss:.4f} at step {step:.0f}"
        case {"step": step, **rest} if len(rest) == 1:
            return f"{shown(rest)} at step {step:.0f}"
        case dict():
            return ", ".join(f"{key} {shown(item)}" for key, item in value.items())
        case list():
            return " ".join(map(str, value))
    return str(value)


def warn_of_damage(console: Console, folder: Path) -> None:
    """Warn of damaged lines of metrics.jsonl."""
    from mini_tf.run.metric_files import count_damaged

    if n_damaged := count_damaged(path := folder / "metrics.jsonl"):
        console.warn(f"{path}: {n_damaged} damaged line{'s are' if n_damaged > 1 else ' is'} left out")


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
    runs: list[dict[str, Any]] = []
    for folder in finding.list_runs(directory):
        try:
            runs.append(summary(folder, manifest.read(folder)))
        except RunFault as fault:
            console.warn(fault.message)
    if not runs:
        console.say(f"no runs in {directory}; `minitf pretrain` creates one")
    else:
        rows = [row_of(facts) for facts in runs]
        used = _fitting(rows, console.width)
        console.show(table, [HEADERS[n] for n in used], [[row[n] for n in used] for row in rows])
    console.output(result=runs)


def _fitting(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Indices of the non-empty columns that fit into the width, the first ones."""
    columns = enumerate(zip(HEADERS, *rows, strict=True))
    sizes = {n: max(map(len, column)) for n, column in columns if any(column[1:])}
    while len(sizes) > FEWEST and sum(sizes.values()) + 2 * (len(sizes) - 1) > width:
        sizes.popitem()
    return [*sizes]


@command
def show(console: Console, run: RUN) -> None:
    from mini_tf.run import finding, manifest, metric_files
    from mini_tf.run.checkpoint import Checkpoints

    folder = finding.find(run)
    record = manifest.read(folder)
    warn_of_damage(console, folder)
    reports = list(metric_files.read_lines(folder / "metrics.jsonl"))
    kind = next((kind for kind in finding.MEMBERS for report in reports if kind in report), "")
    members = [report for report in reports if kind and kind in report]  # of a set of runs
    fitted = {}
    if (decision := record.decision) is not None:
        biases = {f"bias of {label}": bias for label, bias in decision.bias.items()}
        fitted = {"temperature": decision.temperature, **biases}
    facts = summary(folder, record) | {
        "fitted": fitted,
        "extensions": record.extensions,
        "checkpoints": sorted(Checkpoints.of(folder).steps()),
        "error": record.error,
        "seed": record.seed,
        "seeds": members if kind == "seed" else [],
        "folds": members if kind == "fold" else [],
        "auto": record.auto,
        "hashes": record.hashes,
        "versions": record.versions | {source.package: source.version for source in record.kinds.values()},
        "command": record.command,
    }
    last = {key: value for report in reports if not members for key, value in report.items() if key != "not_finite"}
    measured = {key: last.pop(key) for key in list(last) if key.startswith(("val.", "train."))}
    lines = read_lines(facts | {f"{kind}s": len(members)} if members else facts)
    for report in members:
        lines += ["", f"one {kind}:", *read_lines(report)]
    if last:
        lines += ["", f"training, last report (step {last.pop('step', '?')}):", *read_lines(last)]
    title, metrics = "last evaluation", measured | record.metrics
    if record.metrics and members:
        of = next((number for number, report in enumerate(members, start=1) if report.get("median")), "?")
        title = f"median of each metric over {len(members)} {kind}s (model.safetensors is from {kind}-{of})"
        metrics = record.metrics
    elif record.metrics and record.model:
        title = f"model.safetensors (step {record.model['step']}), on all validation data"
        metrics = record.metrics
    if metrics:
        lines += ["", f"{title}:", *read_lines(metrics)]
    console.output("\n".join(lines), run=folder, metrics=last | measured | record.metrics, result=facts)


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
    subject = safe_text(folders[0].name) if len(folders) == 1 else f"these {len(folders)} runs"
    write_stderr(f"remove {subject}? [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
