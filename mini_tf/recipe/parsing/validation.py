"""Validate a YAML tree as a Recipe, and report all errors at once with their lines."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from mini_tf.recipe.kind_folders import KindFault
from mini_tf.recipe.kinds import Kind, Section
from mini_tf.recipe.parsing.key_names import OTHER_NAMES, OTHER_WAYS
from mini_tf.recipe.parsing.merging import kinds_at, part_of
from mini_tf.recipe.parsing.schema_faults import Fault, faults_of
from mini_tf.recipe.parsing.yaml_tree import MAX_REPORTED, Node, recipe_fault
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.values import Scalar
from mini_tf.system.errors import RecipeFault, near

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
    values = tree.plain()
    all_faults: list[Fault] = []
    for _ in range(_MAX_PASSES):
        try:
            made = section.model_validate(values)
            break
        except ValidationError as error:
            faults = faults_of(error)
            earlier, others = _Removed(all_faults), [*all_faults, *faults]
            new = [fault for fault in faults if not earlier.explains(fault) and not _misspelt(fault, others)]
            all_faults += new
            if not [fault for fault in new if _remove(values, fault.path)]:
                break
    if all_faults:
        raise _refusal(all_faults, tree)
    return made


class _Removed:
    """The keys of earlier errors, which were removed."""

    def __init__(self, earlier: Sequence[Fault]) -> None:
        self.paths = {fault.path for fault in earlier}
        self.keys = {_key(fault.path) for fault in earlier if fault.path}

    def explains(self, fault: Fault) -> bool:
        """True for an error that only exists because one of the keys was removed."""
        return (
            () in self.paths
            or fault.path in self.paths
            or any(key[:n] in self.keys for key in fault.depends for n in range(len(key) + 1))
        )


def _key(path: Path) -> Path:
    """The innermost key on `path`; for an entry of a list, the list."""
    return path if isinstance(path[-1], str) else _key(path[:-1])


def _misspelt(fault: Fault, others: Sequence[Fault]) -> bool:
    """True for a missing key if an unknown key beside it has a similar name."""
    if fault.type != "missing":
        return False
    unknown = [
        str(other.path[-1]) for other in others if other.type == "no_such_key" and other.path[:-1] == fault.path[:-1]
    ]
    return near(str(fault.path[-1]), unknown[:_MAX_COMPARED]) is not None


def _remove(value: Any, path: Path) -> bool:
    """Remove the innermost key of `path` from nested dicts; False if there is none."""
    holder, key = None, ""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict) and step in value:
            holder, key, value = value, step, value[step]
        elif isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else value
        else:
            return False
    if holder is None:
        return False
    del holder[key]
    return True


def _below(node: Node, step: str | int) -> Node | None:
    """The node of a key, if given; of an index, that of the item, which may stand alone in place of a list."""
    if isinstance(step, str):
        return node.value.get(step) if isinstance(node.value, dict) else None
    return node.value[step] if isinstance(node.value, list) and step < len(node.value) else node


def innermost_node(path: Path, tree: Node) -> Node:
    """The innermost existing node on `path`."""
    node = tree
    for step in path:
        below = _below(node, step)
        if below is None:
            break
        node = below
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
    key, item = _key_and_item(fault.path, tree)
    argument = where.removeprefix(f"{COMMAND_LINE}: ")
    if argument.startswith("--"):  # an option sets a key of a section
        key = ".".join(key.split(".")[2:])
    if not key or (argument != where and argument.startswith((f"{key}=", f"{key}.kind="))):
        return message
    return f"{key}{item}: {message}"


def _key_and_item(path: Path, tree: Node) -> tuple[str, str]:
    """A key in an item of a list of several with its number, from 0, and in brackets what the item is called: the name
    of a source of data, or that of its file.
    """
    node, steps, called = tree, list[str](), ""
    for step in _key(path):
        below = _below(node, step)
        if isinstance(step, str) or (isinstance(node.value, list) and len(node.value) > 1):
            steps.append(str(step))
        if isinstance(node.value, list) and below is not None and isinstance(below.value, dict):
            names = (below.value.get(name) for name in ("name", "path"))
            texts = (name.value for name in names if name is not None and isinstance(name.value, Scalar))
            called = f" ({text.rpartition('/')[2] or text})" if (text := next(texts, "")) else ""
        node = below if below is not None else Node({}, node.where)
    return ".".join(steps), called


def all_keys(section: type[Section], node: Node | None, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Dotted names of all keys, with the kinds chosen in `node`."""
    for name, field in section.model_fields.items():
        child = None if node is None else _below(node, name)
        yield ".".join((*path, name))
        if kinds_at(field):
            yield ".".join((*path, name, "kind"))
        if part := part_of(field, child):
            yield from all_keys(part, child, (*path, name))


def section_at(path: Sequence[str | int], tree: Node) -> type[Section] | None:
    """The section class at a path of the tree, which may contain indices into lists of kinds."""
    section: type[Section] | None = Recipe
    node: Node | None = tree
    field = None
    for step in path:
        if isinstance(step, str):
            field = section.model_fields.get(step) if section else None
        node = None if node is None else _below(node, step)
        section = part_of(field, node)
    return section


def no_such_key(path: Sequence[str | int], tree: Node) -> str:
    """The message for an unknown key."""
    *parents, key = (str(step) for step in path if isinstance(step, str))
    section = section_at(path[:-1], tree)
    names = [*(section.model_fields if section else ())]
    known = list(all_keys(Recipe, tree))
    if "." in key:
        outer, *inner = key.split(".")
        nested = "".join(f"{{{name}: " for name in inner) + "VALUE" + "}" * len(inner)
        return f"no such key; in a file it is written nested, at the top level: `{outer}: {nested}`"
    if way := OTHER_WAYS.get(key):
        return f"no such key; {way}"
    suggestion = OTHER_NAMES.get(key)
    if suggestion is None and key in ("name", "type") and section and (issubclass(section, Kind) or "kind" in names):
        return f"no such key; did you mean {'.'.join((*parents, 'kind'))}?"
    names = [name for name in names if name != "kind"]
    if parents:
        suggestion = next((name for name in names if suggestion and suggestion.rpartition(".")[2] == name), suggestion)
    suggestion = suggestion or next((name for name in known if name.rpartition(".")[2] == key), None)
    if not suggestion and (others := _other_kinds(path, key, tree)):
        return f"no such key of this kind; it belongs to {' and '.join(others)}"
    suggestion = (
        suggestion
        or near(key, names)
        or near_elsewhere(key, known)
        or OTHER_NAMES.get(near(key, list(OTHER_NAMES), cutoff=0.8) or "")
    )
    if suggestion in names and not any(isinstance(step, int) for step in path):
        suggestion = ".".join((*parents, str(suggestion)))
    if suggestion:
        return f"no such key; did you mean {suggestion}?"
    if not names:
        return "no such key; this kind has no settings"
    return (
        f"no such key; use one of {', '.join(names)}"
        if len(names) <= 12
        else f"no such key; see `{' '.join(['minitf recipe keys', *filter(None, ['.'.join(parents)])])}`"
    )


def near_elsewhere(key: str, known: Sequence[str]) -> str | None:
    """The first of some dotted keys whose last word is the most similar."""
    names = {name.rpartition(".")[2]: name for name in reversed(known)}
    name = near(key, list(names), cutoff=0.8)
    return names[name] if name else None


def _other_kinds(path: Sequence[str | int], key: str, tree: Node) -> list[str]:
    """The other kinds of the package that have the key."""
    parents = [step for step in path[:-1] if isinstance(step, str)]
    above = section_at(parents[:-1], tree)
    kinds = kinds_at(above.model_fields.get(parents[-1])) if above and parents else None
    return [word for word, kind in kinds.kinds().items() if key in kind.model_fields] if kinds else []
