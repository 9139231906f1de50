"""What `finetune` needs to be given, checked before anything is read, and the shipped recipes of tasks."""

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from json import JSONDecoder
from pathlib import Path
from typing import Any, NoReturn

from mini_tf.recipe import arguments
from mini_tf.recipe.arguments import data_overrides
from mini_tf.recipe.data import FORMATS, LABEL_COLUMNS
from mini_tf.recipe.kinds import kinds_of, settings_of
from mini_tf.recipe.parsing.yaml_tree import plain_yaml
from mini_tf.recipe.reading import Resolved
from mini_tf.recipe.values import one_line
from mini_tf.run import manifest
from mini_tf.run.finding import is_run
from mini_tf.run.identity import run_of
from mini_tf.system.errors import UsageFault
from mini_tf.system.safe_files import free_name, open_plain

_COLUMNS = (
    ("instruct-nano", {"instruction", "messages", "conversations"}),
    ("sst2-nano", {"label", *LABEL_COLUMNS}),
    ("instruct-nano", {"prompt", "completion", "response"}),
    ("summarize-nano", {"summary", "abstract", "highlights"}),
)
"""Columns that data for a task have, the surest first; other tables are classified."""
_SIDES = (("source", "target"), ("src", "tgt"))
_LANGUAGES = re.compile("ar|bg|cs|da|de|el|en|es|et|fi|fr|he|hi|hu|id|it|ja|ko|nl|no|pl|pt|ro|ru|sk|sl|sv|tr|uk|vi|zh")
"""Codes of languages, which are names of columns of translations."""
_HEAD_BYTES = 1 << 20
_HELD_OUT = re.compile(r"(?<![a-z])(val|valid|validation|dev|test)(?![a-z])", re.I)
"""In names of files that are probably not to be trained on."""


def check_task_arguments(recipe: str | None, overrides: list[str], words: Sequence[str] | None = None) -> None:
    """UsageFault with the command to give instead, where there is no recipe, or a run whose weights are not used.

    words: all words of the command line, which the command to give repeats; None: the recipe and the overrides.
    """
    data, keys = data_overrides(overrides), {override.partition("=")[0] for override in overrides}
    words = [*([] if recipe is None else [recipe]), *overrides] if words is None else words
    if recipe is None:
        _refuse_without_recipe(words, data)
    if data and "model.init_from" not in keys and is_run(Path(run_of(recipe) or "")):
        task = _task_of(data) or [recipe]
        at = [*words, recipe].index(recipe)  # the same word may also name the new run
        other = shlex.join([*words[:at], *task, *words[at + 1 :], f"model.init_from={recipe}"])
        raise UsageFault(
            f"{one_line(recipe)} is a run, whose recipe would train from scratch on these data",
            hint=f"`minitf finetune {other}` starts from its weights",
        )


def _refuse_without_recipe(words: Sequence[str], data: list[str]) -> NoReturn:
    if not data:
        raise UsageFault(
            "no recipe given", hint=f"use a recipe file, or a shipped recipe for a task: {', '.join(task_recipes())}"
        )
    if (task := _task_of(data)) is None:
        table = "a table with a text and a label in each row (csv, tsv, jsonl)"
        if any(word.startswith("model.init_from=") for word in words):
            hint = f"use {table}, or `{shlex.join(['minitf', 'pretrain', *words])}`, which continues on plain text"
        else:
            hint = f"use {table}"
        raise UsageFault("no recipe given; a task needs labeled data", hint=hint)
    lines = {name: str(free_name(Path(name).with_suffix(".jsonl"))) for name in data if name.lower().endswith(".json")}
    names = lines | {f"data.train={name}": f"data.train={line}" for name, line in lines.items()}
    words = [names.get(word, word) for word in words]
    convert = "".join(f"jq -c '.[]' {shlex.quote(name)} > {shlex.quote(line)}; " for name, line in lines.items())
    command = shlex.join(["minitf", "finetune", *task, *words])
    raise UsageFault("no recipe given", hint=f"use `{convert}{command}`; for other tasks: {', '.join(task_recipes())}")


def _task_of(data: list[str]) -> list[str] | None:
    """The shipped recipe that such tables are probably for, and further arguments; None if one is a text.

    A .json holds a list of rows.
    """
    formats = {(FORMATS | {".json": "jsonl"}).get(Path(name).suffix.lower(), "txt") for name in data}
    if "txt" in formats:
        return None
    if formats <= {"conll", "conllu"}:
        return ["wnut17-nano"]
    columns = _columns(data[0])
    if "tokens" in columns and columns.keys() & {"tags", "ner_tags"} and formats == {"jsonl"}:
        return ["wnut17-nano"]
    if any(columns.keys() == {*sides} for sides in _SIDES):
        return ["transformer-nano"]
    if len(columns) == 2 and all(map(_LANGUAGES.fullmatch, columns)):
        return ["transformer-nano", "data.fields={{source: {}, target: {}}}".format(*columns)]
    return [next((recipe for recipe, names in _COLUMNS if columns.keys() & names), "sst2-nano")]


def _columns(name: str) -> dict[str, None]:
    """Names of columns, in order: those of a header, or the keys of the first row of JSON."""
    with suppress(OSError, ValueError, RecursionError), open_plain(name) as file:
        head = file.read(_HEAD_BYTES).decode("utf-8-sig", errors="replace").lstrip()
        if head[:1] in ("[", "{"):
            row, _ = JSONDecoder().raw_decode(head.removeprefix("[").lstrip())
            return dict.fromkeys(row) if isinstance(row, dict) else {}
        return dict.fromkeys(column.strip("\"' ") for column in re.split(r"[,;\t]", head.partition("\n")[0].strip()))
    return {}


def task_recipes() -> list[str]:
    """The shipped recipes whose objective is a task."""
    tasks = [word for word, objective in kinds_of("objectives").items() if not _reads_text(objective)]
    recipes = {name: plain_yaml(file.read_text(encoding="utf-8")) for name, file in arguments.presets().items()}
    objectives = {name: recipe.get("objective") for name, recipe in recipes.items()}
    return [
        name for name, kind in objectives.items() if (kind.get("kind") if isinstance(kind, dict) else kind) in tasks
    ]


def _reads_text(objective: Any) -> bool:
    datasets: Any = settings_of("data.datasets", objective.DATASET)
    return bool(datasets.STREAM)


def command_warning(command: str, resolved: Resolved, is_new: bool = False) -> str | None:
    """A warning where the recipe belongs to the other command, both train the same; or where it is a run that gets
    other data or more steps, as if its weights were trained further. is_new: a new run was asked for."""
    recipe, shown = resolved.recipe, resolved.name
    if command == "finetune" and recipe.objective.dataset().STREAM and recipe.model.init_from is None:
        return (
            f"{shown} trains from scratch, as `minitf pretrain {shown}` does; model.init_from=RUN starts from the"
            " weights of a run"
        )
    if command == "pretrain" and not recipe.objective.dataset().STREAM and "tokens" not in recipe.objective.PREDICTS:
        return f"{shown} is a task recipe; its command is `minitf finetune {shown}`, which does the same"
    other_data = resolved.sources.get("data.train") == "command line"
    if command == "pretrain" and other_data and recipe.model.init_from is None and is_run(resolved.path.parent):
        run = one_line(str(resolved.path.parent))  # a path, since the name is enough only in outputs/
        return f"only the recipe of {run} is used, not its weights; model.init_from={shlex.quote(run)} starts from them"
    if command == "pretrain" and recipe.model.init_from is None and is_run(resolved.path.parent):
        return None if is_new else _extension(resolved)
    files = recipe.data.train if other_data and isinstance(recipe.data.train, tuple) and recipe.data.val is None else ()
    if held_out := next((file for file in files if isinstance(file, str) and _HELD_OUT.search(Path(file).name)), None):
        return f"{one_line(Path(held_out).name)} is trained on, too; data.val={one_line(held_out)} holds it out"
    return None


def _extension(resolved: Resolved) -> str | None:
    """A warning where nothing but more steps is given with a finished run, as if it were trained further."""
    folder, record = resolved.path.parent, manifest.read(resolved.path.parent)
    overridden = {key for key, source in resolved.sources.items() if source == "command line"}
    more = (resolved.recipe.train.steps or 0) - (record.step or 0)
    if overridden != {"train.steps"} or record.state != "done" or more <= 0:
        return None
    run = one_line(str(folder))
    return (
        f"this is another run, from scratch; `minitf pretrain {shlex.quote(run)} --extend {more}` trains {run} further"
    )
