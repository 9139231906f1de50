"""From a recipe's name, file or run folder, and overrides, to one complete Recipe that knows where each value came from."""

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mini_tf.recipe.arguments import YAML_BEGINS, is_data_name, is_override
from mini_tf.recipe.corpora import built_in_corpora
from mini_tf.recipe.data import Data, FilePair
from mini_tf.recipe.dataset_rules import reading_rules
from mini_tf.recipe.kind_settings import ObjectiveSettings
from mini_tf.recipe.kinds import Rule, Section
from mini_tf.recipe.parsing import init_from
from mini_tf.recipe.parsing.merging import is_blank, merge
from mini_tf.recipe.parsing.secrets import REASON, holds_secret, names_secret, without_secrets
from mini_tf.recipe.parsing.validation import COMMAND_LINE, check, written
from mini_tf.recipe.parsing.yaml_tree import CODE_KEYS, UNPRINTABLE, Node, deepest, is_word, load, parse, recipe_fault
from mini_tf.recipe.presets import presets
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.values import Written, near, one_line, show
from mini_tf.system.errors import RecipeFault, UsageFault

DEFAULT_RECIPE = "quickstart"
_PATHS = (("data", "train"), ("data", "val"), ("tokenizer", "path"), ("tokenizer", "source", "path"), ("model", "init_from"))
"""The keys that name files, or runs."""
_RUN_SUFFIX = re.compile(r"-[0-9a-f]{6}(\.[0-9]+)?$")


@dataclass(frozen=True)
class Resolved:
    """A recipe with all defaults filled in, and where it came from.

    name: what a run is called after. sources: dotted key -> "quickstart.yaml:12", "command line" or "default".
    shipped: a preset as it is, whatever the device. text: the recipe file as given. tree: what was written, level on level.
    """

    recipe: Recipe
    name: str
    sources: dict[str, str]
    shipped: bool
    text: str
    path: Path
    tree: Node

    def why(self, key: str) -> list[tuple[str, str]]:
        """Where a key's value came from and what it was: (place, value), what counts first, then what it replaced."""
        found: list[tuple[str, str]] = []
        node = written(tuple(key.split(".")), self.tree)
        while node is not None:
            found.append((_source(node.where), _shown(node)))
            node = node.before
        return found or [("default", str(values(self.recipe)[key]))]


def read(recipe: str | Path | None = None, overrides: Sequence[str] = ()) -> Resolved:
    """The recipe of a preset's name, a file or a run folder (None = quickstart), with KEY=VALUE overrides on top.

    Raises RecipeFault with every fault found, UsageFault where there is no such recipe or an override is none.
    """
    path, name, shown = _find(DEFAULT_RECIPE if recipe is None else recipe)
    text = load(path, shown)
    tree = _chain(text, path, shown, ())
    above = _command_line(overrides)
    tree = merge(init_from.below(above, tree), above, Recipe) if above.value else tree
    made = check(tree, Recipe)
    shipped = path in presets().values() and all(override.startswith("runtime.device=") for override in overrides)
    nodes = {path: written(path, tree) for path, _ in _leaves(made.model_dump(mode="json"))}
    sources = {".".join(path): _source(node.where) if node else "default" for path, node in nodes.items()}
    return Resolved(made, name, sources, shipped, text, path, tree)


class _Given(Section):
    data: Data = Data()


def read_data(own: Data, objective: ObjectiveSettings, data: str | None, fields: str | None) -> Data:
    """The section of other data that a run is judged by: its `train` is all of them, written as a recipe writes it.

    fields: their columns, as data.fields; by default they are read as the run's `own`. Raises RecipeFault with every fault found.
    """
    options = {"train": ("--data", data), "fields": ("--fields", fields)}
    given = {}
    for key, (option, text) in options.items():
        name = f"{COMMAND_LINE}: {option}"
        if text is not None and holds_secret(f"{key}={text}"):
            raise RecipeFault(f"{name}: {REASON}", where=[name])
        if text is not None:
            given[key] = _value(text.strip(), name, f"{name} {one_line(text)}")
    level = Node({"data": Node(given, COMMAND_LINE)}, COMMAND_LINE)
    _anchor(level, Path.cwd())
    read = check(level, _Given).data
    kept = ["errors", "split", "pack"]
    if fields is None and not isinstance(read.train, FilePair):
        kept += ["fields", "field_numbers", "header"]
    read = read.model_copy(update={key: getattr(own, key) for key in kept})
    if data is not None and fields is None and read.fields and all(name.isdigit() for name in read.fields.values()):
        numbers = {role: int(name) for role, name in read.fields.items()}
        read = read.model_copy(update={"fields": {}, "field_numbers": numbers})
    rules = (Rule(*rule) for rule in reading_rules(read, objective.dataset(), objective.kind))
    if faults := [(options[rule.key.removeprefix("data.")][0], rule.message) for rule in rules]:
        raise recipe_fault([(f"{COMMAND_LINE}: {option}", message) for option, message in faults])
    return read


def dump(recipe: Recipe) -> str:
    """The complete recipe as YAML (resolved.yaml); reading it gives an equal Recipe."""
    plain = recipe.model_dump(mode="json")
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=1 << 30)


def _find(recipe: str | Path) -> tuple[Path, str, str]:
    """(file, name, what messages call it)."""
    given = str(recipe)
    if given in presets():
        return presets()[given], given, f"{given}.yaml"
    path, shown = Path(given), one_line(without_secrets(given))
    if os.path.isdir(path):
        resolved = path / "resolved.yaml"
        if not os.path.lexists(resolved):
            raise RecipeFault(f"cannot read recipe {shown or 'of no name'}: it is a directory without a resolved.yaml", where=[shown])
        path = resolved
    elif re.match(r"https?://", given):
        raise RecipeFault(
            f"cannot read recipe {shown}: minitf does not download files", hint=f"download it first: curl -LO {shown}", where=[shown]
        )
    elif not os.path.lexists(path) and is_data_name(given):
        with contextlib.suppress(OSError):
            meant = near(path.name, [one.name for one in itertools.islice(path.parent.iterdir(), 1000)])
            raise UsageFault(f"there is no file {shown}", hint=meant and f"did you mean {show(str(path.parent / meant))}?")
        raise UsageFault(f"there is no file {shown}")
    elif not os.path.lexists(path):
        meant = near(given.removesuffix(".yaml"), list(presets()))
        hint = f"did you mean {meant!r}?" if meant else "see `minitf recipe list`"
        if path.suffix in (".yaml", ".yml") or os.sep in given:
            raise RecipeFault(f"cannot read recipe {shown}: there is no such file", hint=hint, where=[shown])
        raise UsageFault(f"no such recipe '{shown}': neither a preset, a file, a run folder nor KEY=VALUE", hint=hint)
    name = path.stem
    if path.name == "resolved.yaml":
        name = _RUN_SUFFIX.sub("", path.absolute().parent.name)
    return path.absolute(), name, one_line(str(path))


def _chain(text: str, path: Path, shown: str, above: tuple[str, ...]) -> Node:
    """A recipe file on top of the recipes that it extends."""
    tree = parse(text, shown)
    if not isinstance(tree.value, dict):
        raise RecipeFault(f"{tree.where}: a recipe is a mapping of sections, got {show(tree.plain())}", where=[tree.where])
    # What a shipped recipe trains on is the user's, and lies where the user works, not where minitf is installed.
    _anchor(tree, Path.cwd() if path in presets().values() else path.parent)
    extends = tree.value.pop("extends", None)
    complete = path.name == init_from.RESOLVED  # a run's own recipe, which stands for itself
    if extends is None:
        return tree if complete else merge(init_from.below(tree, Node({}, tree.where)), tree, Recipe)
    name = str(extends.value)
    if not isinstance(extends.value, Written) or is_blank(extends) or not name:
        raise _no_extending(extends, f"must be a preset or a file, got {show(extends.plain())}")
    lower = presets().get(name, path.parent / name)
    line = (*above, os.path.realpath(path))
    if os.path.realpath(lower) in line:
        raise _no_extending(extends, f"{one_line(name)} extends itself")
    if len(line) > deepest():
        raise _no_extending(extends, f"more than {deepest()} recipes on top of each other")
    if not os.path.lexists(lower):
        meant = near(name, list(presets()))
        way = f"did you mean {meant}?" if meant else f"use a file, or one of {', '.join(presets())}"
        raise _no_extending(extends, f"no such recipe {show(name)}; {way}")
    below_shown = f"{name}.yaml" if name in presets() else one_line(os.path.join(os.path.dirname(shown), name))
    below = _chain(load(lower, below_shown), lower, below_shown, line)
    below.value.pop("expect", None)  # a promise of that recipe, not of this one
    return merge(below if complete else init_from.below(tree, below), tree, Recipe)


def _no_extending(node: Node, message: str) -> RecipeFault:
    return RecipeFault(f"{node.where}: extends: {message}", where=[node.where])


def _command_line(overrides: Sequence[str]) -> Node:
    """All overrides as one level; of two for the same key the later counts."""
    level = Node({}, COMMAND_LINE)
    # A mapping or a kind comes before what stands inside it, in whatever order they were given.
    pairs = [_override(text) for text in overrides]
    for keys, value in sorted(pairs, key=lambda pair: (len(pair[0]), pair[0][-1] != "kind")):
        tree = value
        for key in reversed(keys):
            tree = Node({key: tree}, value.where)
        level = merge(level, tree, None)
    _anchor(level, Path.cwd())
    return level


def _override(argument: str) -> tuple[list[str], Node]:
    if not is_override(argument):
        raise UsageFault(f"{show(without_secrets(argument))} is not KEY=VALUE")
    key, _, text = argument.partition("=")
    keys = key.split(".")
    name = f"{COMMAND_LINE}: {one_line(without_secrets(key))}"
    if holds_secret(argument) or any(map(names_secret, keys)):
        raise RecipeFault(f"{name}: {REASON}", where=[name])
    where = f"{COMMAND_LINE}: {one_line(argument)}"
    if any(k in CODE_KEYS for k in keys):
        raise RecipeFault(f"{where}: a recipe cannot name Python code", where=[where])
    if "extends" in keys:
        raise RecipeFault(f"{where}: extends belongs into a recipe file", where=[where])
    if not all(map(is_word, keys)) or len(keys) > deepest():
        raise RecipeFault(f"{where}: a key is words joined by single dots", where=[where])
    return keys, _value(text, name, where)


def _value(text: str, name: str, where: str) -> Node:
    """What is written on the command line; name: of the key or option, where: all of it."""
    if bad := UNPRINTABLE.search(text):
        surrogate = "\ud800" <= bad[0] < "\ue000"
        reason = "the value is not UTF-8" if surrogate else f"the character {bad[0]!r} is not allowed in a recipe"
        raise RecipeFault(f"{name}: {reason}", where=[name])
    # Only what begins like a mapping, a list or quoted text is YAML's to read: *.txt, 'a: b' and #1 are meant as they are.
    return parse(text, name, where) if text[:1] in YAML_BEGINS else Node(Written(text), where)


def _anchor(tree: Node, folder: Path) -> None:
    """Make the paths in a level absolute; `folder` is where its file lies."""
    for section, *keys in _PATHS:
        node, key = tree.value.get(section), ".".join(keys)
        for step in keys:
            node = node.value.get(step) if node is not None and isinstance(node.value, dict) else None
        for leaf in node.leaves() if node is not None else ():
            name = str(leaf.value)
            if is_blank(leaf) or (section == "data" and (name in built_in_corpora() or name == "-" or name.startswith("hf:"))):
                continue
            path = os.path.abspath(folder / os.path.expanduser(name))
            if section != "data" and not _is_meant(section, path):
                if name == "last":
                    continue  # the section refuses it
                # A run may be given by its name in outputs, which something else of that name does not hide.
                run = os.path.abspath(os.path.join("outputs", name))
                path = run if os.sep not in name and _is_meant(section, run) else path
            if bad := UNPRINTABLE.search(path):  # resolved.yaml, which holds it, could not be read again
                raise RecipeFault(f"{leaf.where}: {section}.{key}: the path {show(path)} has {bad[0]!r} in it", where=[leaf.where])
            leaf.value = Written(path, quoted=True)


def _is_meant(section: str, path: str) -> bool:
    """Whether a path is a tokenizer, or has one; for a model, whether it is a run."""
    if section == "model":
        return os.path.isfile(os.path.join(path, init_from.RESOLVED))
    return os.path.isfile(path) or os.path.isfile(os.path.join(path, "tokenizer.json"))


def values(recipe: Recipe) -> dict[str, Any]:
    """Every value of the complete recipe by its dotted key; a list is one value."""
    return {".".join(path): value for path, value in _leaves(recipe.model_dump(mode="json"))}


def _leaves(plain: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(plain, Mapping) and plain:
        for key, value in plain.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path, plain


def _source(where: str) -> str:
    return COMMAND_LINE if where.startswith(COMMAND_LINE) else where


def _shown(node: Node) -> str:
    """A value as it was written, on one line."""
    if isinstance(node.value, dict):
        return "{" + ", ".join(f"{key}: {_shown(child)}" for key, child in node.value.items()) + "}"
    return "[" + ", ".join(map(_shown, node.value)) + "]" if isinstance(node.value, list) else str(node.value).replace("\n", "\\n")
