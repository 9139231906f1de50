"""The words of a command that trains or reads data: which are recipes, which files of data, and which are KEY=VALUE."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from mini_tf.recipe.data import FORMATS
from mini_tf.recipe.parsing.secrets import without_secrets
from mini_tf.recipe.parsing.yaml_tree import parse
from mini_tf.recipe.values import show
from mini_tf.system.errors import UsageFault

YAML_BEGINS = ("{", "[", '"', "'")
"""What a value on the command line begins with where it is read as YAML."""
_OVERRIDE = re.compile(r"[A-Za-z0-9_.]+=")


def is_override(argument: str) -> bool:
    """True for `a.b=value`; a file of such a name is written ./a=b.yaml."""
    return _OVERRIDE.match(argument) is not None


def sort_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """[RECIPE ...] [DATA ...] [KEY=VALUE ...] in any order as (recipes, overrides); UsageFault where data are named twice.

    Files of data, told by their names, are what data.train names.
    """
    others = [argument for argument in arguments if not is_override(argument)]
    files, overrides = [one for one in others if is_data(one)], [argument for argument in arguments if is_override(argument)]
    if files and any(override.startswith("data.train=") for override in overrides):
        raise UsageFault(f"{show(without_secrets(files[0]))} and data.train both name what is trained on", hint="keep one of them")
    if files:
        plain = len(files) == 1 and files[0][:1] not in YAML_BEGINS
        overrides = [f"data.train={files[0] if plain else json.dumps(files if len(files) > 1 else files[0])}", *overrides]
    return [argument for argument in others if argument not in files], overrides


def split_arguments(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """`sort_arguments` where there is one recipe at most; UsageFault for a second one."""
    recipes, overrides = sort_arguments(arguments)
    if "=" in recipes:
        at = arguments.index("=")
        hint = f"without blanks: {''.join(arguments[max(0, at - 1) : at + 2])}" if 0 < at < len(arguments) - 1 else None
        raise UsageFault("'=' is not KEY=VALUE", hint=hint)
    if len(recipes) > 1:
        second, first = (show(without_secrets(argument)) for argument in (recipes[1], recipes[0]))
        raise UsageFault(f"{second} is not KEY=VALUE, and the recipe is {first} already")
    return (recipes[0] if recipes else None), overrides


def data_overrides(overrides: Sequence[str]) -> list[str]:
    """The files that data.train names among overrides; RecipeFault where it is written as YAML that is none."""
    given = [override.partition("=")[2] for override in overrides if override.startswith("data.train=")]
    if not given or given[-1][:1] not in YAML_BEGINS:
        return given[-1:]
    return [str(leaf.value) for leaf in parse(given[-1], "data.train", "data.train").leaves()]


def is_data(argument: str) -> bool:
    """Whether an argument names a file of data, which is no recipe: by its name, and since it is there."""
    return is_data_name(argument) and os.path.isfile(argument)


def is_data_name(argument: str) -> bool:
    """Whether the name of a file is one of data, by its suffix."""
    return Path(argument).suffix.lower() in (".txt", *FORMATS)
