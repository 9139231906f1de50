"""The facts about a run that `runs list`, `show` and `compare` print."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from mini_tf.cli.terminal.console import Console
from mini_tf.system.numbers import short


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
