"""Merge the levels of a recipe: default < extends < recipe < command line.

A different kind in a later level drops the settings of the old kind. `Section.inherited` drops other keys.
"""

from functools import cache
from typing import Any, get_args

from pydantic.fields import FieldInfo

from mini_tf.recipe.kinds import Kind, KindOf, Section
from mini_tf.recipe.parsing.yaml_tree import Node
from mini_tf.recipe.values import Scalar, is_blank, members


@cache
def kinds_at(field: FieldInfo | None) -> KindOf | None:
    """The mark of a field that holds kinds of a package; None for other fields."""
    marks = [] if field is None else [*field.metadata, *_marks(field.annotation)]
    return next((mark for mark in marks if isinstance(mark, KindOf)), None)


def _marks(annotation: Any) -> list[Any]:
    marks: list[Any] = []
    for kind, constraints in members(annotation):
        marks += [*constraints, *(mark for arg in get_args(kind) if arg is not Ellipsis for mark in _marks(arg))]
    return marks


@cache
def section_of(field: FieldInfo | None) -> type[Section] | None:
    """The section class of a field that has only one; null, text or a kind may also be allowed."""
    types = [] if field is None else [kind for kind, _ in members(field.annotation)]
    sections = [
        kind for kind in types if isinstance(kind, type) and issubclass(kind, Section) and not issubclass(kind, Kind)
    ]
    return sections[0] if len(sections) == 1 else None


def is_whole_section(field: FieldInfo | None) -> bool:
    """Whether a field can only be a section, so that an empty value means the default."""
    return field is not None and field.annotation is section_of(field)


def may_be_blank(field: FieldInfo | None) -> bool:
    """Whether an empty value means the default: for sections, and for kinds with a default that cannot be null."""
    return is_whole_section(field) or (
        kinds_at(field) is not None and default_word(field) is not None and not may_be_null(field)
    )


@cache
def may_be_null(field: FieldInfo | None) -> bool:
    """Whether a field can be null."""
    return field is not None and any(kind is type(None) for kind, _ in members(field.annotation))


def default_word(field: FieldInfo | None) -> str | None:
    """The default kind of a field; None if it has none."""
    section = section_of(field)
    if section is not None:
        kind = section.model_fields.get("kind")
        return None if kind is None else kind.default
    if field is None or kinds_at(field) is None or field.is_required():
        return None
    default = field.get_default(call_default_factory=True)
    default = default[0] if isinstance(default, tuple) and len(default) == 1 else default
    return default.kind if isinstance(default, Kind) else None


def part_of(field: FieldInfo | None, node: Node | None) -> type[Section] | None:
    """The section class at a field; for a kind, that of the kind given by `node`."""
    kinds = kinds_at(field)
    if kinds is None or _is_section(field, node):
        return section_of(field)
    value = None if node is None or is_blank(node.value) else node.value
    value = value[0].value if isinstance(value, list) and len(value) == 1 else value
    word = value["kind"].value if isinstance(value, dict) and "kind" in value else value
    word = str(word) if isinstance(word, Scalar) else default_word(field)
    return None if word is None else kinds.settings(word)


def _is_section(field: FieldInfo | None, node: Node | None) -> bool:
    """Whether `node` is a mapping for the section of a field that may also hold a kind."""
    section = section_of(field)
    keys = node.value.keys() if node is not None and isinstance(node.value, dict) else None
    return (
        section is not None
        and keys is not None
        and "kind" not in keys
        and (not keys or bool(keys & section.model_fields.keys()))
    )


def merge(below: Node, above: Node, section: type[Section] | None, one_level: bool = False) -> Node:
    """Merge the mapping `above` over the mapping `below`, both of `section` (None: unknown).

    one_level: both are parts of one level, in which nothing is dropped but what is given twice.
    """
    written = {key for key, node in above.value.items() if not is_blank(node.value)}
    merged: dict[str, Node] = (Section if section is None or one_level else section).inherited(below.value, written)
    for key, node in above.value.items():
        field = section.model_fields.get(key) if section else None
        merged[key] = _join(merged[key], node, field, one_level) if key in merged else node
        if key not in merged or merged[key] is node:
            node.before = below.value.get(key)
    return Node(merged, below.where if above.where.startswith("command line") else above.where)


def _join(below: Node, above: Node, place: FieldInfo | None, one_level: bool) -> Node:
    either = kinds_at(place) is not None and section_of(place) is not None
    field = None if one_level else place
    if may_be_blank(field) and (is_blank(above.value) or is_blank(below.value)):
        return below if is_blank(above.value) else above
    if may_be_null(field) and (is_blank(above.value) or is_blank(below.value)):
        return above
    if either and (not isinstance(above.value, dict) or _is_section(place, below) != _is_section(place, above)):
        return above  # text, or a mapping of the other form
    if (field is None or kinds_at(field)) and (isinstance(below.value, dict) or isinstance(above.value, dict)):
        below, above = _as_mapping(below), _as_mapping(above)
    if field is not None and kinds_at(field) is None and section_of(field) is None:
        return above
    if not isinstance(above.value, dict) or not isinstance(below.value, dict):
        return above
    if "kind" in above.value:
        old = below.value["kind"].value if "kind" in below.value else default_word(field)
        if old is not None and old != above.value["kind"].value:
            above.before = below
            return above
    both = Node(below.value | above.value, above.where)
    return merge(below, above, part_of(place, both), one_level)


def _as_mapping(node: Node) -> Node:
    """A kind given by name alone, as a mapping."""
    return Node({"kind": node}, node.where) if isinstance(node.value, Scalar) else node
