"""Validate a YAML tree as a Recipe, and report all errors at once with their lines."""

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from mini_tf.recipe.kind_folders import KindFault
from mini_tf.recipe.kinds import Section
from mini_tf.recipe.parsing.schema_faults import Fault, faults_of
from mini_tf.recipe.parsing.unknown_keys import no_such_key
from mini_tf.recipe.parsing.yaml_tree import MAX_REPORTED, Node, recipe_fault
from mini_tf.recipe.values import Scalar, near
from mini_tf.system.errors import RecipeFault

COMMAND_LINE = "command line"
_MAX_PASSES = 16
_MAX_COMPARED = 1000
"""Unknown keys that are compared with the name of a missing one."""
Path = tuple[str | int, ...]


Made = TypeVar("Made", bound=Section)


def check(tree: Node, section: type[Made]) -> Made:
    """Validate a tree as a `section`, such as a Recipe; RecipeFault with one line per error.

    Rules between keys can only be checked once the keys are valid. So invalid keys are removed and the rest is
    validated again; a rule that depends on a removed key is not reported, since it would see the key's default.
    """
    given = tree.plain()
    found: list[Fault] = []
    for _ in range(_MAX_PASSES):
        try:
            made = section.model_validate(given)
            break
        except ValidationError as error:
            faults = faults_of(error)
            earlier, others = _Removed(found), [*found, *faults]
            new = [fault for fault in faults if not earlier.explains(fault) and not _misspelt(fault, others)]
            found += new
            if not [fault for fault in new if _remove(given, fault.path)]:
                break
    if found:
        raise _refusal(found, tree)
    return made


class _Removed:
    """The keys of earlier errors, which were removed."""

    def __init__(self, earlier: Sequence[Fault]) -> None:
        self.paths = {fault.path for fault in earlier}
        self.keys = {_key(fault.path) for fault in earlier if fault.path}

    def explains(self, fault: Fault) -> bool:
        """True for an error that only exists because one of the keys was removed."""
        return (
            () in self.paths or fault.path in self.paths or any(key[:n] in self.keys for key in fault.depends for n in range(len(key) + 1))
        )


def _key(path: Path) -> Path:
    """The innermost key on `path`; for an entry of a list, the list."""
    return path if isinstance(path[-1], str) else _key(path[:-1])


def _misspelt(fault: Fault, others: Sequence[Fault]) -> bool:
    """True for a missing key if an unknown key beside it has a similar name."""
    if fault.type != "missing":
        return False
    unknown = [str(other.path[-1]) for other in others if other.type == "no_such_key" and other.path[:-1] == fault.path[:-1]]
    return near(str(fault.path[-1]), unknown[:_MAX_COMPARED]) is not None


def _remove(given: Any, path: Path) -> bool:
    """Remove the innermost key of `path` from nested dicts; False if there is none."""
    holder, key = None, ""
    for step in path:
        if isinstance(step, str) and isinstance(given, dict) and step in given:
            holder, key, given = given, step, given[step]
        elif isinstance(step, int):
            given = given[step] if isinstance(given, list) and step < len(given) else given
        else:
            return False
    if holder is None:
        return False
    del holder[key]
    return True


def innermost_node(path: Path, tree: Node) -> Node:
    """The innermost existing node on `path`."""
    node = tree
    for step in path:
        if isinstance(step, str) and isinstance(node.value, dict) and step in node.value:
            node = node.value[step]
        elif isinstance(step, int):
            node = node.value[step] if isinstance(node.value, list) and step < len(node.value) else node
        else:
            break
    return node


def value_node(path: Path, tree: Node) -> Node | None:
    """The node of the value at `path`, if given; for a kind given by name alone, its `kind`."""
    above = tree
    for step in path[:-1]:
        below = above.value.get(step) if isinstance(above.value, dict) else None
        if below is None:
            return None
        above = below
    if isinstance(above.value, dict):
        return above.value.get(path[-1])
    return above if path[-1] == "kind" and isinstance(above.value, Scalar) else None


def _refusal(faults: Sequence[Fault], tree: Node) -> RecipeFault:
    placed = sorted(((_where(fault, tree), fault) for fault in faults), key=lambda pair: _order(pair[0]))
    reported = placed[:MAX_REPORTED]  # before the hints, each of which searches all keys
    lines = [(where, _message(where, fault, tree)) for where, fault in reported]
    kinds = any(fault.type == "no_such_kind" for fault in faults)
    return recipe_fault(lines, len(placed) - len(reported), KindFault if kinds else RecipeFault)


def _where(fault: Fault, tree: Node) -> str:
    """The location of an error; for a rule between keys, the key on the command line, which broke a valid file."""
    node = innermost_node(fault.path, tree)
    others = [] if node.where.startswith(COMMAND_LINE) else [value_node(key, tree) for key in fault.depends]
    node = next((other for other in others if other is not None and other.where.startswith(COMMAND_LINE)), node)
    if fault.type == "no_such_kind" and isinstance(node.value, dict):
        node = node.value.get("kind", node)
    return node.where


def _order(where: str) -> tuple[bool, str, int]:
    """Sort key: files first, by line; then the command line."""
    if where.startswith(COMMAND_LINE):
        return True, "", 0
    file, _, line = where.rpartition(":")
    return False, file, int(line)


def _message(where: str, fault: Fault, tree: Node) -> str:
    """The message after the location, with the key unless the location contains it."""
    message = no_such_key(fault.path, tree) if fault.type == "no_such_key" else fault.message
    key = ".".join(str(step) for step in fault.path if isinstance(step, str))
    argument = where.removeprefix(f"{COMMAND_LINE}: ")
    if argument.startswith("--"):  # an option sets a key of a section
        key = ".".join(key.split(".")[2:])
    if not key or (argument != where and argument.startswith((f"{key}=", f"{key}.kind="))):
        return message
    return f"{key}: {message}"
