"""`minitf recipe`: list, show, check, keys, schema, init."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.terminal import completion
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.loading import at_terminal, resolve_arguments
from mini_tf.cli.terminal.options import RECIPE

if TYPE_CHECKING:
    from mini_tf.recipe.keys import Key
    from mini_tf.recipe.reading import Resolved


@command
def list_(console: Console) -> None:
    from mini_tf.recipe.arguments import presets, summary
    from mini_tf.recipe.reading import DEFAULT_RECIPE

    rows = [{"name": name, "summary": summary(file), "path": str(file)} for name, file in presets().items()]
    shown: dict[str, tuple[str, str]] = {}
    for row in sorted(rows, key=lambda row: row["name"] != DEFAULT_RECIPE):
        series, dash, number = row["name"].rpartition("-")
        name, text = shown.get(series, (row["name"], row["summary"]))
        if dash and number.isdigit():
            shown[series] = (f"{name.partition(' ')[0]} ... {number}" if series in shown else name, text)
        else:
            shown[row["name"]] = (row["name"], row["summary"])
    width = max((len(name) for name, _ in shown.values()), default=0)
    console.output("\n".join(f"{name:<{width}}  {text}" for name, text in shown.values()), result=rows)


@command
def show(
    console: Console,
    arguments: RECIPE = None,
    why: Annotated[
        str | None,
        typer.Option(
            "--why", metavar="KEY", help="Show where the value of KEY was set.", autocompletion=completion.sections
        ),
    ] = None,
) -> None:
    from mini_tf.recipe.reading import dump

    resolved = resolve_arguments(arguments)
    if why is None:
        plain = resolved.recipe.model_dump(mode="json")
        console.output(dump(resolved.recipe).rstrip("\n"), result={"recipe": plain, "sources": resolved.sources})
        return
    matching = [key for key in resolved.sources if key == why or key.startswith(f"{why}.")]
    if not matching:
        raise _no_such("key", why, list(resolved.sources))
    history = {key: resolved.why(key) for key in matching}
    lines = [f"{key}: " + " < ".join(f"{value} ({place})" for place, value in steps) for key, steps in history.items()]
    result = {key: [{"where": place, "value": value} for place, value in steps] for key, steps in history.items()}
    console.output("\n".join(lines), result=result)


@command
def check(console: Console, arguments: RECIPE = None) -> None:
    resolved = resolve_arguments(arguments)
    _check_expectations(resolved)
    console.output(f"{resolved.name}: no faults", result={"name": resolved.name, "path": str(resolved.path)})


def _check_expectations(resolved: "Resolved") -> None:
    """RecipeFault for a metric in `expect` that no training measures; without torch, so not of baselines."""
    from mini_tf.cli.terminal.gate_checks import OF_SEEDS, is_among
    from mini_tf.recipe.metrics import Gate, metric_names, metrics_of
    from mini_tf.recipe.values import show
    from mini_tf.system.errors import RecipeFault, suggest

    recipe = resolved.recipe
    of_objective = metrics_of(recipe.objective, recipe.objective.classes)
    names = [*(f"val.{name}" for name in of_objective), "train.loss", "minutes"]
    bounds = [
        (key, metric) for key, comparison in recipe.expect.items() for metric in Gate.parse(key + comparison).metrics
    ]
    for key, metric in bounds:
        if metric.startswith("baseline."):
            continue
        bare = next((metric.removesuffix(end) for end in OF_SEEDS if metric.endswith(end)), metric)
        if not any(is_among(name, names) for name in (*metric_names(metric), *metric_names(bare))):
            way = suggest(metric, names, f"use one of {', '.join(names)}")
            where = resolved.sources.get(f"expect.{key}", "expect")
            raise RecipeFault(f"{where}: expect: no such metric {show(metric)}; {way}", where=[where])


@command
def schema(console: Console) -> None:
    from mini_tf.recipe.keys import json_schema

    with at_terminal("reading all kinds"):
        made = json_schema()
    console.output(json.dumps(made, indent=2), result=made)


@command
def keys(
    console: Console,
    section: Annotated[
        str | None,
        typer.Argument(
            metavar="[SECTION]",
            help="A section, such as model.attention, a key, or a word of keys or of their meaning.",
            autocompletion=completion.sections,
        ),
    ] = None,
) -> None:
    from mini_tf.recipe.keys import keys

    with at_terminal("reading all kinds"):
        known = keys()
    chosen = [key for key in known if section is None or key.name == section or key.name.startswith(f"{section}.")]
    chosen = chosen or [key for key in known if key.name.rpartition(".")[2] == section]
    chosen = chosen or _with_word(str(section).strip().lower(), known)
    if not chosen:
        raise _no_such("section", str(section), sorted({key.name.rpartition(".")[0] or key.name for key in known}))
    width = max(len(key.name) for key in chosen)
    console.output("\n".join(_row(key, width) for key in chosen), result=[vars(key) for key in chosen])


def _with_word(word: str, known: "Sequence[Key]") -> "list[Key]":
    """The keys with a word, or the beginning of one, in their names, else in their meaning; or that it stands for."""
    from mini_tf.recipe.parsing.key_names import OTHER_NAMES

    if not word:
        return []
    name, begins = OTHER_NAMES.get(word, "").partition(" ")[0], re.compile(rf"(^|[^a-z]){re.escape(word)}")
    called = [key for key in known if key.name == name]
    named = called or [key for key in known if begins.search(key.name)]
    return named or [key for key in known if begins.search(key.meaning.lower())]


def _row(key: "Key", width: int) -> str:
    of = f" (kind {', '.join(key.kinds)})" if key.kinds else ""
    default = f"default {key.default}. " if key.default else ""
    return f"{key.name:<{width}}  {key.type}{of}. {default}{key.meaning}".rstrip()


def _no_such(noun: str, word: str, words: list[str]) -> Exception:
    from mini_tf.recipe.values import show
    from mini_tf.system.errors import UsageFault, suggest

    return UsageFault(f"no such {noun} {show(word)}", hint=suggest(word, words, "see `minitf recipe keys`"))


@command
def init(
    console: Console,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The recipe to write; an existing file is never overwritten.")
    ] = Path("recipe.yaml"),
    preset: Annotated[
        str,
        typer.Option(
            "--from", metavar="PRESET", help="The shipped recipe to start from.", autocompletion=completion.recipes
        ),
    ] = "quickstart",
) -> None:
    from mini_tf.recipe.arguments import presets
    from mini_tf.recipe.keys import add_section_comments
    from mini_tf.recipe.values import one_line
    from mini_tf.system.errors import StorageFault, UsageFault

    if preset not in presets():
        raise _no_such("preset", preset, list(presets()))
    text = add_section_comments(presets()[preset].read_text(encoding="utf-8"))
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise UsageFault(f"{one_line(str(file))} already exists", hint="give another name") from None
    except OSError as error:
        raise StorageFault(f"cannot write {one_line(str(file))}: {error.strerror}", hint="give another name") from None
    console.say(f"next: edit it, then minitf recipe check {file}; minitf pretrain {file}")
    console.output(str(file), result={"path": str(file)})
