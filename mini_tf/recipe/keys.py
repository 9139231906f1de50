"""All recipe keys with type, range, default and meaning, and the JSON Schema of a recipe."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined, core_schema

from mini_tf.recipe.kinds import Kind, Section
from mini_tf.recipe.parsing.merging import is_whole_section, kinds_at, may_be_null, section_of
from mini_tf.recipe.parsing.unknown_keys import OTHER_NAMES
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.values import describe, members, near, number


@dataclass(frozen=True)
class Key:
    """A recipe key; kinds: the kinds that have it, if not all of the package."""

    name: str
    type: str
    default: str
    meaning: str
    kinds: tuple[str, ...] = ()


def keys() -> list[Key]:
    """Every key of a recipe; imports all kinds."""
    return list(_keys_of([(None, Recipe)], ""))


def suggest_key(option: str) -> str | None:
    """The recipe key for an option such as --batch-size, --learning_rate or --model.n_layers; None if there is none."""
    word = option.lstrip("-").replace("-", "_")
    known = [key.name for key in keys()]
    ending = [name for name in known if f".{name}".endswith(f".{word}")]
    if ending:
        return min(ending, key=lambda name: name.count(".")) if word != "kind" else None
    by_last = {name.rpartition(".")[2]: name for name in reversed(known)}
    suggestion = OTHER_NAMES.get(word) or near(word, known, cutoff=0.8) or by_last.get(near(word, list(by_last), cutoff=0.8) or "")
    return suggestion and suggestion.partition(" ")[0]


def _keys_of(variants: Sequence[tuple[str | None, type[Section]]], prefix: str) -> Iterator[Key]:
    """The keys of alternative sections, each given with its kind."""
    fields: dict[tuple[str, ...], list[tuple[str | None, FieldInfo]]] = {}
    for word, section in variants:
        for name, field in section.model_fields.items():
            fields.setdefault((name, type_of(field), default_of(field), _meaning(field)), []).append((word, field))
    for (name, *_), found in fields.items():
        field = found[0][1]
        words = tuple(str(word) for word, _ in found) if len(found) < len(variants) else ()
        kinds, part = kinds_at(field), section_of(field)
        if kinds is not None and part is None and may_be_null(field):
            yield Key(f"{prefix}{name}", "null, or a kind", "", _meaning(field), words)
        if part is not None and not is_whole_section(field):
            yield Key(f"{prefix}{name}", type_of(field), default_of(field), _meaning(field), words)
        if kinds is not None:
            yield Key(f"{prefix}{name}.kind", "one of " + ", ".join(kinds.words()), default_of(field), _meaning(field), words)
            yield from _keys_of(list(kinds.kinds().items()), f"{prefix}{name}.")
        if part is not None and not _is_written_as_text(field):
            yield from _keys_of([(None, part)], f"{prefix}{name}.")
        elif kinds is None:
            yield Key(f"{prefix}{name}", type_of(field), default_of(field), _meaning(field), words)


def _is_written_as_text(field: FieldInfo) -> bool:
    """True for a section that a recipe writes as one text (data.split)."""
    section = section_of(field)
    return section is not None and section.__str__ is not Section.__str__


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def type_of(field: FieldInfo) -> str:
    """The type and range as text."""
    if _is_written_as_text(field):
        return "text"
    bounds = [c for _, constraints in members(field.annotation, field.metadata) for c in constraints]
    texts = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    known = [f"{text} {number(getattr(b, name))}" for name, text in texts.items() for b in bounds if getattr(b, name, None) is not None]
    return ", ".join(dict.fromkeys([describe(field.annotation, field.metadata), *known]))


def default_of(field: FieldInfo) -> str:
    """The default as in a recipe; empty if there is none."""
    value = field.get_default(call_default_factory=True)
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if value is PydanticUndefined or value is None:
        return ""
    if isinstance(value, Kind):
        return value.kind
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number(value)
    if isinstance(value, tuple):
        return f"[{', '.join(one.kind if isinstance(one, Kind) else str(one) for one in value)}]"
    return str(value)


class _WithWrittenNumbers(GenerateJsonSchema):
    """Allows numbers written as 10k, 5% or 30m, which YAML reads as text."""

    def int_schema(self, schema: core_schema.IntSchema) -> dict[str, Any]:
        return {"anyOf": [super().int_schema(schema), {"type": "string", "pattern": r"^[-+0-9_.eE]+[kMGT]?$"}]}

    def float_schema(self, schema: core_schema.FloatSchema) -> dict[str, Any]:
        return {"anyOf": [super().float_schema(schema), {"type": "string", "pattern": r"^[-+0-9_.eE]+[kMGT%smhd]?$"}]}


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a recipe file, for editors."""
    schema = Recipe.model_json_schema(schema_generator=_WithWrittenNumbers)
    schema.pop("required", None)  # `extends` may provide every section
    extends = {"type": "string", "description": "The preset or file that this recipe extends."}
    schema["properties"] = {"extends": extends} | schema["properties"]
    return {"$schema": GenerateJsonSchema.schema_dialect} | schema | {"title": "minitf recipe"}
