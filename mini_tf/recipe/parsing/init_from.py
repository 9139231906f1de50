"""Fill in model and tokenizer settings from the run, or the Hugging Face folder, in model.init_from.

They replace those of lower levels, as a kind given later replaces the settings of the old kind. Settings of the same
level or a later one override them, and are compared with the run when its weights are loaded. Of the recipe's own
model, the kind, keys that the run's kind does not have, and dropout_rate, which affects no tensor, are kept.
"""

import json
import os
from pathlib import Path
from typing import Any

from mini_tf.recipe.kinds import usable_settings
from mini_tf.recipe.parsing.run_paths import run_around
from mini_tf.recipe.parsing.yaml_tree import Node, load, parse
from mini_tf.recipe.sections import ROLES
from mini_tf.recipe.values import Scalar, one_line
from mini_tf.system import strict_json
from mini_tf.system.errors import RecipeFault
from mini_tf.system.safe_files import read_small_file

RESOLVED, CONFIG, SOURCE_TOKENIZER = "resolved.yaml", "config.json", "source_tokenizer.json"
_OWN = ("init_from", "dropout_rate")
"""Keys that are not copied from the run's model."""


def with_run_settings(level: Node, lower: Node, replaced: bool = False) -> Node:
    """The lower levels, with the model and tokenizer of the run if `level` sets init_from.

    replaced: a later level names another run. This one is not read, as it may be gone, and no kind is taken from it.
    """
    named = _mapping(level.value.get("model")).get("init_from")
    init_from = named or _mapping(lower.value.get("model")).get("init_from")
    if init_from is not None and _is_run_name(init_from):
        _refuse_other_tokenizer(level)
    if (
        named is not None and named.where.startswith("command line") and named.value == ""
    ):  # from an unset shell variable
        raise _refusal(named, "is empty; use null for no run")
    if replaced or named is None or not _is_run_name(named):
        return lower
    folder = Path(str(named.value))
    run = _read(folder, named)
    theirs, ours = _mapping(run.value.get("model")), _mapping(lower.value.get("model"))
    kind = _mapping(level.value.get("model")).get("kind") or ours.get("kind") or theirs["kind"]
    model = {key: node for key, node in ours.items() if key in _OWN or (key not in theirs and key != "encoder")}
    model |= {key: _with_length(node, folder) for key, node in theirs.items() if key not in _OWN and _has(kind, key)}
    model |= {"kind": kind}
    their_tokenizer = _mapping(run.value.get("tokenizer"))
    tokenizer = {"path": Node(Scalar(str(folder), quoted=True), named.where)}
    keys = ROLES if (folder / RESOLVED).is_file() else (*ROLES, "path", "source")
    tokenizer |= {key: node for key, node in their_tokenizer.items() if key in keys}
    if _has(kind, "encoder") and (folder / SOURCE_TOKENIZER).exists():
        path = Node(Scalar(str(folder / SOURCE_TOKENIZER), quoted=True), named.where)
        source = {key: node for key, node in _mapping(their_tokenizer.get("source")).items() if key in ROLES}
        tokenizer["source"] = Node({"path": path, **source}, named.where)
    above = {"model": Node(model, named.where), "tokenizer": Node(tokenizer, named.where)}
    return Node(lower.value | above, lower.where)


def names_run(level: Node) -> bool:
    """Whether a level sets model.init_from to a run or a folder."""
    named = _mapping(level.value.get("model")).get("init_from")
    return named is not None and _is_run_name(named)


def _is_run_name(node: Node) -> bool:
    return isinstance(node.value, Scalar) and str(node.value) not in ("", "~", "null", "last")


def _refuse_other_tokenizer(level: Node) -> None:
    """Raise RecipeFault if the level trains a tokenizer, whose ids the run's model would not know."""
    keys = _mapping(level.value.get("tokenizer"))
    for key in ("kind", "vocab_size"):
        if key in keys and "path" not in keys:
            where = keys[key].where
            message = f"{where}: tokenizer.{key}: model.init_from uses the run's tokenizer; remove this section"
            raise RecipeFault(message, where=[where])


def _read(folder: Path, node: Node) -> Node:
    path = folder / RESOLVED
    if not os.path.isfile(path) and (run := _of_other_tool(folder)) is not None:
        return run
    if not os.path.isfile(path):
        message = f"no such run {one_line(str(folder))}"
        if os.path.lexists(folder):
            message = (
                f"{one_line(str(folder))} is"
                f" {'not a run folder' if os.path.isdir(folder) else 'a file; give the folder of a run'}"
            )
        if around := run_around(folder):
            raise _refusal(node, message, f"the run is its folder: model.init_from={one_line(str(around[0]))}")
        way = "`minitf runs list` lists runs; to continue a run whose init_from is gone: `minitf pretrain RUN -d RUN`"
        raise _refusal(node, message, way)
    run = parse(load(path, str(path)), str(path))
    if not isinstance(run.value, dict) or "kind" not in _mapping(run.value.get("model")):
        raise _refusal(node, f"{path} has no model")
    return run


def _of_other_tool(folder: Path) -> Node | None:
    """The sections of a recipe for a folder with a Hugging Face model; None if it is none, or of no known family.

    Raises RunFault if minitf has no such model.
    """
    path = folder / CONFIG
    try:
        values = strict_json.read(read_small_file(path))
        word = values["model_type"].replace("-", "_")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    family: Any = usable_settings("hf.families", word)
    return None if family is None else parse(json.dumps(family().sections(values, folder)), str(path))


def _refusal(node: Node, message: str, hint: str = "") -> RecipeFault:
    key = "" if "model.init_from=" in node.where else "model.init_from: "  # an override contains the key
    return RecipeFault.located(node.where, f"{key}{message}", hint=hint)


def _mapping(node: Node | None) -> dict[str, Node]:
    """The keys of a section; a kind given by name alone has `kind`."""
    if node is None:
        return {}
    return node.value if isinstance(node.value, dict) else {"kind": node}


def _has(kind: Node, key: str) -> bool:
    settings = usable_settings("models", str(kind.value))
    return settings is None or key in settings.model_fields


def _with_length(settings: Node, folder: Path) -> Node:
    """Positions of length auto have the run's length, not that of the new context; also within settings."""
    if not isinstance(settings.value, dict):
        return settings
    keys = {key: _with_length(node, folder) for key, node in settings.value.items()}
    if str(getattr(keys.get("length"), "value", "")) != "auto":
        return Node(keys, settings.where)
    try:
        context = int(strict_json.read(read_small_file(folder / CONFIG))["context"])
    except (OSError, ValueError, KeyError, TypeError):
        return settings  # loading the run will report the error
    return Node(keys | {"length": Node(Scalar(str(context)), settings.where)}, settings.where)
