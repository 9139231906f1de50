"""What each key of a recipe accepts and what it is by default, on record in tests/data/keys.json.

A default, a bound or a word changes what recipes mean without changing their text, so such a change is seen here as a
line. `python -m tests.key_bounds` writes the file anew, where the change is meant.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from mini_tf.recipe.kinds import Section, listing, settings_of
from mini_tf.recipe.parsing.merging import kinds_at
from mini_tf.recipe.recipe import Recipe

FILE = Path(__file__).parent / "data" / "keys.json"
IN_WORDS = ("title", "description", "markdownDescription")
"""Parts of a JSON Schema that are meant for people, and change more often."""


def key_bounds() -> dict[str, Any]:
    """By `section.key`, or `package/word.key` of a kind: JSON Schema; the default where it holds sections or kinds."""
    keys: dict[str, Any] = {}
    places: dict[str, type[Section]] = {"": Recipe}
    pending = [*places.items()]
    while pending:
        name, section = pending.pop()
        properties = section.model_json_schema()["properties"] if section.model_fields else {}
        for key, field in section.model_fields.items():
            path, kinds = f"{name}{key}", kinds_at(field)
            if kinds is not None:
                inner = {
                    f"{kinds.package}/{word}.": settings_of(kinds.package, word) for word in listing(kinds.package)
                }
            else:
                inner = {f"{path}.": part for part in _sections(field.annotation)}
            pending += [(place, part) for place, part in inner.items() if place not in places]
            places |= inner
            keys[path] = _default(field) if inner else _without_words(properties[key])
    return dict(sorted(keys.items()))


def _sections(annotation: Any) -> Iterator[type[Section]]:
    """The sections in a type."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections(inner)


def _default(field: Any) -> Any:
    """The default of a key that holds sections or kinds, which name themselves."""
    return (
        {"required": True}
        if field.is_required()
        else {"default": _as_json(field.get_default(call_default_factory=True))}
    )


def _as_json(value: Any) -> Any:
    if isinstance(value, Section):
        changed = {name: _as_json(part) for name, part in value.model_dump(exclude_defaults=True).items()}
        return {"kind": value.kind, **changed} if hasattr(value, "kind") else changed
    return [_as_json(part) for part in value] if isinstance(value, tuple) else value


def _without_words(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _without_words(part) for name, part in schema.items() if name not in IN_WORDS}
    return [_without_words(part) for part in schema] if isinstance(schema, list) else schema


def main() -> None:
    lines = ",\n".join(
        f"  {json.dumps(key)}: {json.dumps(bounds, sort_keys=True)}" for key, bounds in key_bounds().items()
    )
    FILE.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
