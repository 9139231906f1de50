"""What is pinned of run ids (tests/data/formats/pinned.json): the ids of some recipes, and every default that an id
leaves out.

`PYTHONPATH=. python tests/pinned.py` adds the defaults of new keys and the ids of new recipes ("NAME": "") to the file.
It changes nothing that is there, since runs that people have are known by it; until the first release, `--anew` makes
all of it again.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from mini_tf.recipe.kinds import Kind, Section, listing, settings_of
from mini_tf.recipe.parsing.merging import kinds_at
from mini_tf.recipe.reading import read
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.result_keys import NO_EFFECT_ON_RESULT, as_json, hash_defaults
from mini_tf.run.identity import Identity

FILE = Path(__file__).parent / "data" / "formats" / "pinned.json"
CONTENTS = {"data": "x", "tokenizer": "y"}
REQUIRED, KIND = "(required)", "(kind)"


def pinned() -> dict[str, Any]:
    """`ids`: by the overrides of quickstart; `defaults`: by `section.key`, and `package/word.key` for kinds."""
    fields: dict[str, Any] = json.loads(FILE.read_text())
    return fields


def run_id(recipe: str) -> str:
    """The id of a run of `NAME KEY=VALUE ...`, which are divided by two spaces."""
    name, *overrides = recipe.split("  ")
    return Identity.of(read(name, overrides), CONTENTS).run_id


def defaults() -> dict[str, Any]:
    """Every key that decides a result, with the default that an id leaves out."""
    found: dict[str, Any] = {}
    places: list[tuple[str, type[Section]]] = [("", Recipe)]
    for name, section in places:  # grows while it is read
        given = hash_defaults(section)
        if issubclass(section, Kind):
            found[name.removesuffix(".")] = KIND
        for key, field in section.model_fields.items():
            path = f"{name}{key}"
            if path in NO_EFFECT_ON_RESULT or (name.startswith("models/") and f"model.{key}" in NO_EFFECT_ON_RESULT):
                continue
            kinds, whole = kinds_at(field), path in ("data.train", "data.val", "data.split")  # hashed by their contents
            if kinds is not None and not whole:
                named = [(f"{kinds.package}/{word}.", settings_of(kinds.package, word)) for word in listing(kinds.package)]
                places += [one for one in named if one not in places]
            elif not whole and (part := part_of(field.annotation)) is not None:
                places.append((f"{path}.", part))
                if field.is_required() or isinstance(given[key], Section):
                    continue
            found[path] = REQUIRED if field.is_required() else _written(section, key, given[key])
    return found


def part_of(annotation: Any) -> type[Section] | None:
    """The section in a type; two of them at one place could not be told apart by their keys."""
    sections = set(_sections(annotation))
    assert len(sections) <= 1, f"{annotation} holds {len(sections)} sections"
    return next(iter(sections), None)


def _sections(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections(inner)


def _written(section: type[Section], key: str, default: Any) -> Any:
    """A default as JSON; a kind whose settings all have their own defaults is its word."""
    kind = default[0] if isinstance(default, tuple) and len(default) == 1 else default
    if isinstance(kind, Kind) and kind == type(kind)():
        return kind.kind
    return as_json(section, {key: default})[key]


def main() -> None:
    fields = pinned()
    if sys.argv[1:] == ["--anew"]:
        fields = {"ids": dict.fromkeys(fields["ids"]), "defaults": {}}
    new = {key: value for key, value in defaults().items() if key not in fields["defaults"]}
    fields["defaults"] = dict(sorted({**fields["defaults"], **new}.items()))
    ids = ",\n".join(f"  {json.dumps(recipe)}: {json.dumps(number or run_id(recipe))}" for recipe, number in fields["ids"].items())
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in fields["defaults"].items())
    FILE.write_text(f'{{\n "ids": {{\n{ids}\n }},\n "defaults": {{\n{lines}\n }}\n}}\n')
    print(f"{len(new)} new keys: {', '.join(new)}")


if __name__ == "__main__":
    main()
