"""Resolve a recipe name, file or run folder and overrides to a complete Recipe with the origin of each value."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mini_tf.recipe.arguments import YAML_BEGINS, is_override, is_shipped, no_recipe, presets
from mini_tf.recipe.corpora import built_in_corpora, files_in
from mini_tf.recipe.data import Data, FilePair
from mini_tf.recipe.dataset_rules import reading_rules
from mini_tf.recipe.kind_settings.objectives import ObjectiveSettings
from mini_tf.recipe.kinds import Rule, Section
from mini_tf.recipe.parsing import init_from
from mini_tf.recipe.parsing.merging import merge
from mini_tf.recipe.parsing.run_paths import run_around
from mini_tf.recipe.parsing.validation import COMMAND_LINE, check, value_node
from mini_tf.recipe.parsing.yaml_tree import (
    CODE_KEYS,
    REASON,
    UNPRINTABLE,
    Node,
    deepest,
    holds_secret,
    is_word,
    load,
    names_secret,
    parse,
    recipe_fault,
    to_yaml,
    without_secrets,
)
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.values import Scalar, is_blank, one_line, show
from mini_tf.system import hub
from mini_tf.system.errors import RecipeFault, UsageFault, suggest

DEFAULT_RECIPE = "quickstart"
_PATHS = (
    ("data", "train"),
    ("data", "val"),
    ("tokenizer", "path"),
    ("tokenizer", "source", "path"),
    ("model", "init_from"),
    ("objective", "teacher"),
)
"""Keys whose values are files or runs."""
_RUN_SUFFIX = re.compile(r"-[0-9a-f]{6}(\.[0-9]+)?$")


@dataclass(frozen=True)
class Resolved:
    """A complete recipe, and where its values came from.

    name: for run folders. sources: dotted key -> "quickstart.yaml:12", "command line" or "default". shipped: an
    unchanged preset (except for runtime.device). text: the recipe file. tree: the merged YAML nodes of all levels.
    """

    recipe: Recipe
    name: str
    sources: dict[str, str]
    shipped: bool
    text: str
    path: Path
    tree: Node

    def why(self, key: str) -> list[tuple[str, str]]:
        """The history of a key as (location, value): the value in effect first, then those it replaced."""
        history: list[tuple[str, str]] = []
        node = value_node(tuple(key.split(".")), self.tree)
        while node is not None:
            history.append((_source(node.where), _shown(node)))
            node = node.before
        return history or [("default", _as_yaml(flat_values(self.recipe)[key]))]


def read(recipe: str | Path | None = None, overrides: Sequence[str] = ()) -> Resolved:
    """Resolve a preset name, file or run folder (None: quickstart) with KEY=VALUE overrides.

    Raises RecipeFault with all errors, UsageFault if the recipe does not exist or an override is not KEY=VALUE.
    """
    path, name, shown = _find(DEFAULT_RECIPE if recipe is None else recipe)
    text = load(path, shown)
    above = _command_line(overrides)
    tree = _chain(text, path, shown, (), init_from.names_run(above))
    tree = merge(init_from.with_run_settings(above, tree), above, Recipe) if above.value else tree
    checked = check(tree, Recipe)
    shipped = is_shipped(path) and all(override.startswith("runtime.device=") for override in overrides)
    nodes = {path: value_node(path, tree) for path, _ in _leaves(checked.model_dump(mode="json"))}
    sources = {".".join(path): _source(node.where) if node else "default" for path, node in nodes.items()}
    return Resolved(checked, name, sources, shipped, text, path, tree)


class _DataOnly(Section):
    data: Data = Data()


def read_data(run_data: Data, objective: ObjectiveSettings, data: str | None, fields: str | None) -> Data:
    """The `data` section for evaluating a run on other data; `train` is all of it, in the form of data.train.

    fields: the columns, in the form of data.fields; by default those of `run_data`. Raises RecipeFault with
    all errors.
    """
    options = {"train": ("--data", data), "fields": ("--fields", fields)}
    nodes = {}
    for key, (option, text) in options.items():
        name = f"{COMMAND_LINE}: {option}"
        if text is not None and holds_secret(f"{key}={text}"):
            raise RecipeFault.located(name, f"{REASON}")
        if text is not None:
            nodes[key] = _value(text.strip(), name, f"{name} {one_line(text)}")
    level = Node({"data": Node(nodes, COMMAND_LINE)}, COMMAND_LINE)
    _anchor(level, Path.cwd())
    read = check(level, _DataOnly).data
    copied = ["errors", "split", "pack"]
    if fields is None and not isinstance(read.train, FilePair):
        copied += ["fields", "field_numbers", "header"]
    read = read.model_copy(update={key: getattr(run_data, key) for key in copied})
    if data is not None and fields is None and read.fields and all(name.isdigit() for name in read.fields.values()):
        numbers = {role: int(name) for role, name in read.fields.items()}
        read = read.model_copy(update={"fields": {}, "field_numbers": numbers})
    rules = (Rule(*rule) for rule in reading_rules(read, objective.dataset(), objective.kind))
    if faults := [(options[rule.key.removeprefix("data.")][0], rule.message) for rule in rules]:
        raise recipe_fault([(f"{COMMAND_LINE}: {option}", message) for option, message in faults])
    return read


def dump(recipe: Recipe) -> str:
    """The complete recipe as YAML (resolved.yaml), which resolves to an equal Recipe."""
    return to_yaml(recipe.model_dump(mode="json"))


def _find(recipe: str | Path) -> tuple[Path, str, str]:
    """(file, name, name in messages)."""
    name_or_path = str(recipe)
    shipped = presets()
    if name_or_path in shipped:
        return shipped[name_or_path], name_or_path, f"{name_or_path}.yaml"
    path, shown = Path(name_or_path), one_line(without_secrets(name_or_path))
    if os.path.isdir(path):
        resolved = path / "resolved.yaml"
        if not os.path.lexists(resolved):
            hint = f"model.init_from={shown} starts from a model" if os.path.lexists(path / "config.json") else None
            if run := run_around(path):
                hint = f"the run is its folder: {run[0]}"
            if os.path.lexists(path / "run.json"):
                hint = "this run has lost it; the command that started the run (in run.json) writes it again"
            fault = f"cannot read recipe {shown or 'of no name'}: it is a folder without a resolved.yaml"
            raise RecipeFault(fault, hint=hint, where=[shown])
        path = resolved
    elif re.match(r"https?://", name_or_path):
        hint = f"download it first: curl -LO {shown}"
        raise RecipeFault(f"cannot read recipe {shown}: minitf does not download files", hint=hint, where=[shown])
    elif not os.path.lexists(path):
        raise no_recipe(name_or_path, shown)
    elif path.suffix in (".json", ".safetensors") and (run := run_around(path)):
        raise RecipeFault(f"{shown} is no recipe", hint=f"the run is its folder: {run[0]}", where=[shown])
    name = path.stem
    if path.name == "resolved.yaml":
        name = _RUN_SUFFIX.sub("", path.absolute().parent.name)
    return path.absolute(), name, one_line(str(path))


def _chain(text: str, path: Path, shown: str, above: tuple[str, ...], replaced: bool) -> Node:
    """The tree of a recipe file merged over the recipes that it extends.

    above: the files that extend it. replaced: a later level names another run to start from.
    """
    tree = parse(text, shown)
    if not isinstance(tree.value, dict):
        raise RecipeFault.located(tree.where, f"a recipe must be a mapping of sections, got {show(tree.plain())}")
    # Data paths of a shipped recipe are relative to the working directory, not to the installation.
    complete = path.name == init_from.RESOLVED  # the complete recipe of a run
    _anchor(tree, Path.cwd() if is_shipped(path) else path.parent, complete)
    extends = tree.value.pop("extends", None)
    if extends is None:
        lowest = Node({}, tree.where)
        return tree if complete else merge(init_from.with_run_settings(tree, lowest, replaced), tree, Recipe)
    name = str(extends.value)
    if not isinstance(extends.value, Scalar) or is_blank(extends.value) or not name:
        raise _extends_fault(extends, f"must be a preset or a file, got {show(extends.plain())}")
    shipped = presets()
    lower = shipped.get(name, path.parent / name)
    line = (*above, os.path.realpath(path))
    if os.path.realpath(lower) in line:
        raise _extends_fault(extends, f"{one_line(name)} extends itself")
    if len(line) > deepest():
        raise _extends_fault(extends, f"more than {deepest()} recipes extend each other")
    if not os.path.lexists(lower):
        way = suggest(name, shipped, f"use a file, or one of {', '.join(shipped)}")
        raise _extends_fault(extends, f"no such recipe {show(name)}; {way}")
    below_shown = f"{name}.yaml" if name in shipped else one_line(os.path.join(os.path.dirname(shown), name))
    below = _chain(load(lower, below_shown), lower, below_shown, line, replaced or init_from.names_run(tree))
    below.value.pop("expect", None)  # bounds of that recipe, not of this one
    return merge(below if complete else init_from.with_run_settings(tree, below, replaced), tree, Recipe)


def _extends_fault(node: Node, message: str) -> RecipeFault:
    return RecipeFault.located(node.where, f"extends: {message}")


def _command_line(overrides: Sequence[str]) -> Node:
    """All overrides as one level; the last one for a key is used."""
    level = Node({}, COMMAND_LINE)
    # A mapping or kind is applied before keys inside it, in any order of arguments.
    pairs = [_override(text) for text in overrides]
    for keys, value in sorted(pairs, key=lambda pair: (len(pair[0]), pair[0][-1] != "kind")):
        tree = value
        for key in reversed(keys):
            tree = Node({key: tree}, value.where)
        level = merge(level, tree, Recipe, one_level=True)
    _anchor(level, Path.cwd())
    return level


def _override(argument: str) -> tuple[list[str], Node]:
    if not is_override(argument):
        raise UsageFault(f"{show(without_secrets(argument))} is not KEY=VALUE")
    key, _, text = argument.partition("=")
    keys = key.split(".")
    name = f"{COMMAND_LINE}: {one_line(without_secrets(key))}"
    if holds_secret(argument) or any(map(names_secret, keys)):
        raise RecipeFault.located(name, f"{REASON}")
    where = f"{COMMAND_LINE}: {one_line(argument)}"
    if any(k in CODE_KEYS for k in keys):
        raise RecipeFault.located(where, "a recipe cannot name Python code")
    if "extends" in keys:
        raise RecipeFault.located(where, "extends is only allowed in a recipe file")
    if not all(map(is_word, keys)) or len(keys) > deepest():
        raise RecipeFault.located(where, "a key must be words joined by single dots")
    return keys, _value(text, name, where)


def _value(text: str, name: str, where: str) -> Node:
    """Parse a command-line value; name: the key or option, where: the whole argument."""
    if bad := UNPRINTABLE.search(text):
        surrogate = "\ud800" <= bad[0] < "\ue000"
        reason = "the value is not UTF-8" if surrogate else f"the character {bad[0]!r} is not allowed in a recipe"
        raise RecipeFault.located(name, f"{reason}")
    # Only a mapping, a list or quoted text is parsed as YAML; *.txt, 'a: b' and #1 are plain text.
    return parse(text, name, where) if text[:1] in YAML_BEGINS else Node(Scalar(text), where)


def _anchor(tree: Node, folder: Path, complete: bool = False) -> None:
    """Make the paths in a level absolute, relative to `folder`. complete: the level is the recipe of a run."""
    for section, *keys in _PATHS:
        node, key = tree.value.get(section), ".".join(keys)
        for step in keys:
            node = node.value.get(step) if node is not None and isinstance(node.value, dict) else None
        for leaf in () if node is None else files_in(node) if section == "data" else node.leaves():
            name = str(leaf.value)
            is_folder = section == "data" and re.match(rf"{hub.PREFIX}[./~]", name)  # with a dataset
            prefix = hub.PREFIX if is_folder else ""
            named = section == "data" and (name in built_in_corpora() or name == "-" or name.startswith(hub.PREFIX))
            if is_blank(leaf.value) or (named and not prefix):
                continue
            path = prefix + os.path.abspath(folder / os.path.expanduser(name.removeprefix(prefix)))
            if section in ("model", "objective") and name.startswith(hub.PREFIX):
                if complete:  # of a run, whose names ask for no connection
                    fault = f"{section}.{key}: must be a folder in the recipe of a run, got {show(name)}"
                    raise RecipeFault(f"{leaf.where}: {fault}")
                path = os.path.abspath(hub.local_folder(name))
            if section != "data" and not _exists(section, path):
                if name == "last":
                    continue  # refused by the section
                # A run may be given by its name in outputs.
                run = os.path.abspath(os.path.join("outputs", name))
                path = run if os.sep not in name and _exists(section, run) else path
            if bad := UNPRINTABLE.search(path):  # resolved.yaml could not be parsed
                raise RecipeFault.located(leaf.where, f"{section}.{key}: the path {show(path)} contains {bad[0]!r}")
            leaf.value = Scalar(path, quoted=True)


def _exists(section: str, path: str) -> bool:
    """Whether a path is a run or a model's folder (sections model, objective), or a tokenizer or a folder with one."""
    if section in ("model", "objective"):
        return any(os.path.isfile(os.path.join(path, name)) for name in (init_from.RESOLVED, init_from.CONFIG))
    return os.path.isfile(path) or os.path.isfile(os.path.join(path, "tokenizer.json"))


def flat_values(recipe: Recipe) -> dict[str, Any]:
    """All values of the complete recipe by dotted key; a list is one value."""
    return {".".join(path): value for path, value in _leaves(recipe.model_dump(mode="json"))}


def _leaves(plain: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(plain, Mapping) and plain:
        for key, value in plain.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path, plain


def _source(where: str) -> str:
    return COMMAND_LINE if where.startswith(COMMAND_LINE) else where


def _as_yaml(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _shown(node: Node) -> str:
    """A value as written, on one line."""
    if isinstance(node.value, dict):
        return "{" + ", ".join(f"{key}: {_shown(child)}" for key, child in node.value.items()) + "}"
    if isinstance(node.value, list):
        return "[" + ", ".join(map(_shown, node.value)) + "]"
    return str(node.value).replace("\n", "\\n")
