"""Command-line arguments: recipes and presets (`recipes/*.yaml`, also in a wheel), data files, KEY=VALUE overrides."""

import json
import os
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from glob import has_magic, iglob
from itertools import pairwise
from pathlib import Path

from mini_tf.recipe.corpora import built_in_corpora
from mini_tf.recipe.kind_folders import own_folders
from mini_tf.recipe.parsing.data_names import is_data_name
from mini_tf.recipe.parsing.run_paths import run_around
from mini_tf.recipe.parsing.yaml_tree import parse, without_secrets
from mini_tf.recipe.values import show
from mini_tf.system import hub
from mini_tf.system.errors import RecipeFault, UsageFault, near
from mini_tf.system.safe_files import names_beside, open_plain

YAML_BEGINS = ("{", "[", '"', "'")
"""A command-line value that starts with one of these is parsed as YAML."""
_OVERRIDE = re.compile(r"[A-Za-z0-9_.]+=")
_SHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"


def is_override(argument: str) -> bool:
    """True for `a.b=value`; a file with such a name is given as ./a=b.yaml."""
    return _OVERRIDE.match(argument) is not None


def sort_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split [RECIPE ...] [DATA ...] [KEY=VALUE ...] in any order into (recipes, overrides).

    Data files and folders of them become data.train. Raises UsageFault if data.train is given as well.
    """
    others = [argument for argument in arguments if not is_override(argument)]
    files = [argument for argument in others if is_data_file(argument)]
    overrides = [argument for argument in arguments if is_override(argument)]
    if files and any(override.startswith("data.train=") for override in overrides):
        fault = f"{show(without_secrets(files[0]))} and data.train both give training data"
        raise UsageFault(fault, hint="keep one of them")
    if files:
        plain = len(files) == 1 and files[0][:1] not in YAML_BEGINS
        overrides = [
            f"data.train={files[0] if plain else json.dumps(files if len(files) > 1 else files[0])}",
            *overrides,
        ]
    return [argument for argument in others if argument not in files], overrides


def split_arguments(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """`sort_arguments` for at most one recipe; UsageFault for a second one."""
    for n, argument in enumerate(arguments):
        if is_override(argument) and len(rest := _up_to_bracket(arguments[n:])) > 1:
            quoted = shlex.quote(" ".join(map(without_secrets, rest)))
            raise UsageFault(f"{show(without_secrets(argument))} ends in a bracket", hint=f"put it in quotes: {quoted}")
    recipes, overrides = sort_arguments(arguments)
    if "=" in recipes:
        at = arguments.index("=")
        hint = (
            f"write it without spaces: {''.join(arguments[max(0, at - 1) : at + 2])}"
            if 0 < at < len(arguments) - 1
            else None
        )
        raise UsageFault("'=' is not KEY=VALUE", hint=hint)
    if len(recipes) > 1:
        second, first = (show(without_secrets(argument)) for argument in (recipes[1], recipes[0]))
        raise UsageFault(f"{second} is not KEY=VALUE, and {first} is already the recipe")
    return (recipes[0] if recipes else None), overrides


def _up_to_bracket(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments up to the one that closes the brackets of the first; the first alone if none does."""
    open_ = 0
    for n, argument in enumerate(arguments, 1):
        open_ += sum(map(argument.count, "{[")) - sum(map(argument.count, "}]"))
        if open_ <= 0:
            return arguments[:n]
    return arguments[:1]


def data_overrides(overrides: Sequence[str]) -> list[str]:
    """The files of the last data.train override; RecipeFault if its YAML is invalid."""
    values = [override.partition("=")[2] for override in overrides if override.startswith("data.train=")]
    if not values or values[-1][:1] not in YAML_BEGINS:
        return values[-1:]
    return [str(leaf.value) for leaf in parse(values[-1], "data.train", "data.train").leaves()]


def is_data_file(argument: str) -> bool:
    """Whether an argument is data: a folder that is no run, no part of one and no model, a file of another suffix than
    a recipe, a pattern of such files, or "-" for stdin.

    A recipe has the suffix .yaml, .yml or none; .json is data if it holds a list.
    """
    suffix = Path(argument).suffix.lower()
    if argument == "-" or (
        suffix not in ("", ".yaml", ".yml") and not os.path.lexists(argument) and _matches(argument)
    ):
        return True
    if os.path.isdir(argument):
        holds = (os.path.lexists(os.path.join(argument, name)) for name in ("resolved.yaml", "config.json"))
        return suffix not in (".yaml", ".yml") and not any(holds) and run_around(Path(argument)) is None
    if not os.path.isfile(argument):
        return False
    if suffix == ".json":
        with suppress(OSError), open_plain(argument) as file:
            return file.read(64).lstrip().startswith(b"[")
    weights_of_run = suffix == ".safetensors" and run_around(Path(argument)) is not None
    return suffix not in ("", ".yaml", ".yml", ".json") and not weights_of_run


def _matches(pattern: str) -> bool:
    """Whether a glob matches a file."""
    return has_magic(pattern) and any(map(os.path.isfile, iglob(pattern, recursive=True)))


def no_recipe(name: str, shown: str) -> RecipeFault | UsageFault:
    """The fault of a recipe that does not exist, with what is meant by its name. shown: the name in messages."""
    path, shipped = Path(name), presets()
    word = path.name if os.sep in name else name
    files = (file for file in names_beside(path) if is_data_name(file) or file.endswith((".yaml", ".yml")))
    beside = near(word, [file for file in files if os.path.isfile(path.parent / file)], cutoff=0.7)
    similar = near(word, [*shipped] if beside is None else [*shipped, beside])
    similar = f"{word}-nano" if f"{word}-nano" in shipped and not is_data_name(word) else similar
    meant = show(str(path.parent / beside) if beside and similar == beside else str(similar))
    hint = "see `minitf recipe list`" if similar is None else f"did you mean {meant}?"
    hint = "did you mean --help?" if name == "help" else hint
    exact = (*built_in_corpora(), *hub.DATASETS.values())
    if run := run_around(path) or run_around(Path("outputs", name)):
        hint = f"the run is its folder: {run[0]}"
    elif (similar is None or name.startswith(hub.PREFIX) or name in exact) and (known := known_data(name)):
        hint = known
    elif name.startswith(hub.PREFIX) or hub.is_model(name):
        hint = f"a model of Hugging Face's hub: model.init_from={hub.PREFIX}{shown.removeprefix(hub.PREFIX)}"
    if is_data_name(name):
        return UsageFault(f"no such file {shown}", hint=None if hint.startswith("see") else hint)
    if path.suffix in (".yaml", ".yml") or os.sep in name:
        return RecipeFault(f"cannot read recipe {shown}: no such file", hint=hint, where=[shown])
    if similar is not None and similar == beside:
        return UsageFault(f"no such file {shown}", hint=hint)
    fault = f"no such recipe '{shown}': it is not a shipped recipe, a file, a run folder or KEY=VALUE"
    return UsageFault(fault, hint=hint)


def known_data(name: str) -> str | None:
    """How data that people call by this name are given; None for a name that is not known."""
    if name in built_in_corpora():
        return f"built-in data: data.train={name}"
    plain = name.removeprefix(hub.PREFIX)
    word = re.sub(r"[^a-z0-9]+", "_", Path(plain).stem.lower())
    if word in hub.DATASETS and plain not in hub.DATASETS.values() and (name == plain or os.sep not in plain):
        plain = hub.DATASETS[word]
    if plain in hub.DATASETS.values():
        return f"a data set of Hugging Face's hub: data.train={hub.PREFIX}{plain}"
    if "shakespeare" in word and name == plain and os.sep not in plain:
        return f"the text is a file: curl -LO {_SHAKESPEARE}; minitf pretrain input.txt"
    return None


def _folders() -> dict[Path, None]:
    """The folders of the shipped recipes: inside the package if installed from a wheel, else beside it, and papers'."""
    package = Path(__file__).parents[1]
    inside = package / "recipes"
    main = inside if inside.is_dir() else package.parent / "recipes"
    return dict.fromkeys([main, *(path / "recipes" for paper in own_folders() for path in paper.paths)])


def is_shipped(file: Path) -> bool:
    return file.suffix == ".yaml" and file.parent in _folders()


def presets() -> dict[str, Path]:
    """Name and file of every shipped recipe, sorted by name. RecipeFault if two have the same name."""
    shipped = (file for folder in _folders() for file in folder.glob("*.yaml"))
    files = sorted(shipped, key=lambda file: _natural_order(file.stem))
    for file, after in pairwise(files):
        if file.stem == after.stem:
            fault = f"two shipped recipes have the name {file.stem!r}: {file} and {after}"
            raise RecipeFault(fault, hint="rename one of them")
    return {file.stem: file for file in files}


def _natural_order(name: str) -> list[str | int]:
    """A sort key with 2 before 10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def summary(file: Path) -> str:
    """The first comment line of a recipe."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((line.lstrip("# ").rstrip() for line in lines if line.startswith("#")), "")
