"""A recipe that begins with a run (model.init_from) takes over the run's model and tokenizer.

They replace what lower levels say of either, as a kind given later replaces the settings of the old kind; what the same level or a
later one says comes on top, and is compared with the run when its weights are loaded. Of the recipe's own model only the kind stays,
what the run's kind does not have, and dropout_rate, which decides no tensor.
"""

import json
import os
from pathlib import Path

from mini_tf.recipe.kinds import usable
from mini_tf.recipe.parsing.yaml_tree import Node, load, parse
from mini_tf.recipe.values import Written, one_line
from mini_tf.system.errors import RecipeFault
from mini_tf.system.plain_file import read_small_file

RESOLVED, CONFIG, SOURCE_TOKENIZER = "resolved.yaml", "config.json", "source_tokenizer.json"
_OWN = ("init_from", "dropout_rate")
"""Keys of the run's model that are not taken over."""


def below(level: Node, lower: Node) -> Node:
    """What a level stands on: the lower levels, with the run's model and tokenizer where the level begins with one."""
    given = _mapping(level.value.get("model")).get("init_from")
    begins = given or _mapping(lower.value.get("model")).get("init_from")
    if begins is not None and _names_a_run(begins):
        _refuse_other_tokenizer(level)
    if given is not None and given.where.startswith("command line") and given.value == "":  # as a variable leaves it that is not set
        raise _refusal(given, "names no run; write null where none is meant")
    if given is None or not _names_a_run(given):
        return lower
    folder = Path(str(given.value))
    run = _read(folder, given)
    theirs, ours = _mapping(run.value.get("model")), _mapping(lower.value.get("model"))
    kind = _mapping(level.value.get("model")).get("kind") or ours.get("kind") or theirs["kind"]
    model = {key: node for key, node in ours.items() if key in _OWN or (key not in theirs and key != "encoder")}
    model |= {key: node for key, node in theirs.items() if key not in _OWN and _has(kind, key)}
    model |= {"kind": kind}
    if "positions" in model:
        model["positions"] = _as_long(model["positions"], folder)
    if "positions" in (side := _mapping(model.get("encoder"))):
        model["encoder"] = Node(side | {"positions": _as_long(side["positions"], folder)}, given.where)
    tokenizer = {"path": Node(Written(str(folder), quoted=True), given.where)}
    if _has(kind, "encoder") and (folder / SOURCE_TOKENIZER).exists():
        path = Node(Written(str(folder / SOURCE_TOKENIZER), quoted=True), given.where)
        tokenizer["source"] = Node({"path": path}, given.where)
    above = {"model": Node(model, given.where), "tokenizer": Node(tokenizer, given.where)}
    return Node(lower.value | above, lower.where)


def _names_a_run(node: Node) -> bool:
    return isinstance(node.value, Written) and str(node.value) not in ("", "~", "null", "last")


def _refuse_other_tokenizer(level: Node) -> None:
    """A tokenizer that is to be trained is another than the run's, whose ids the model knows."""
    keys = _mapping(level.value.get("tokenizer"))
    for key in ("kind", "vocab_size"):
        if key in keys and "path" not in keys:
            where = keys[key].where
            what = f"{where}: tokenizer.{key}: model.init_from takes the run's own tokenizer; leave the section out"
            raise RecipeFault(what, where=[where])


def _read(folder: Path, given: Node) -> Node:
    path = folder / RESOLVED
    if not os.path.isfile(path):
        what = f"there is no run {one_line(str(folder))}"
        if os.path.lexists(folder):
            what = f"{one_line(str(folder))} is {'no run folder' if os.path.isdir(folder) else 'a file; name the folder of a run'}"
        way = (
            "`minitf runs list` shows what there is; a run that began with one that is gone is its own recipe: `minitf pretrain RUN -d RUN`"
        )
        raise _refusal(given, what, way)
    run = parse(load(path, str(path)), str(path))
    if not isinstance(run.value, dict) or "kind" not in _mapping(run.value.get("model")):
        raise _refusal(given, f"{path} names no model")
    return run


def _refusal(given: Node, what: str, hint: str = "") -> RecipeFault:
    key = "" if "model.init_from=" in given.where else "model.init_from: "  # an override says it already
    return RecipeFault(f"{given.where}: {key}{what}", hint=hint, where=[given.where])


def _mapping(node: Node | None) -> dict[str, Node]:
    """The keys of a section; a kind given by its word alone has one."""
    if node is None:
        return {}
    return node.value if isinstance(node.value, dict) else {"kind": node}


def _has(kind: Node, key: str) -> bool:
    settings = usable("models", str(kind.value))
    return settings is None or key in settings.model_fields


def _as_long(positions: Node, folder: Path) -> Node:
    """Tables of places are as long as the run made them, whatever the context is now."""
    keys = _mapping(positions)
    if str(getattr(keys.get("length"), "value", "")) != "auto":
        return positions
    try:
        context = int(json.loads(read_small_file(folder / CONFIG))["context"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return positions  # opening the run will tell what is wrong with it
    return Node(keys | {"length": Node(Written(str(context)), positions.where)}, positions.where)
