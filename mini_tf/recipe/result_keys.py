"""Which keys of a recipe decide the result of a run, their values, and the values by which a run's id is not changed.

A run's id is a hash of the keys whose value is not the default (`run/identity.py`), so a key that is added later with a default
changes no id. Where a default is changed, the section says in `FORMER_DEFAULTS` what it was: the former value stays the one that is left
out, and the new one is hashed.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from mini_tf.recipe.corpora import built_in_corpora
from mini_tf.recipe.kinds import Kind, Section
from mini_tf.recipe.recipe import Recipe

NO_EFFECT_ON_RESULT = {
    *("log", "checkpoint", "generate", "expect", "runtime.device"),
    *("train.micro_batch_size", "train.on_nonfinite", "train.most_skips", "train.stop_above"),
    *("data.home", "data.errors", "tokenizer.path", "tokenizer.source.path", "model.init_from"),
}
"""Sections and keys that decide no result: reports and samples; what changes only the order of sums and the draws of dropout; what
ends a run early or lets it go on, but changes no step that is made; and names of files and runs, whose contents are hashed instead
(data.errors shows in them; data.home only says where they come from)."""
_CORPORA = {"data.train", "data.val"}
"""Of these only the name of a built-in corpus decides; files do by their contents."""


GIVEN = "given"
"""The value of a section that may be null and is not."""


class Required:
    """The default of a key that has none."""


class Key(NamedTuple):
    """A key by its dotted name, its value and its default, both as JSON; the default is `Required` where there is none."""

    name: str
    value: Any
    default: Any


def result_keys(recipe: Recipe) -> list[Key]:
    """Every key that decides the result; `attention[1].window` is a key of the second kind of a list.

    A kind's default is that of its place where the place has this kind by default, else that of the kind's own settings. Of a
    section that may be null the key itself says whether it is given, since its keys may all have their defaults; of a list of kinds
    it says how many there are.
    """
    return list(_of_keys(recipe, hash_defaults(type(recipe)), ""))


def hash_defaults(section: type[Section]) -> dict[str, Any]:
    """The defaults by which ids are unchanged: what a default was first (`Section.FORMER_DEFAULTS`), otherwise what it is."""
    return _defaults(section) | _former(section)


def as_json(section: type[Section], name: str, value: Any) -> Any:
    """The value of a section's key as a recipe writes it."""
    return section.model_construct(**{name: value}).model_dump(mode="json", include={name}, warnings=False)[name]


def _defaults(section: type[Section]) -> dict[str, Any]:
    fields = section.model_fields.items()
    return {name: field.get_default(call_default_factory=True) for name, field in fields if not field.is_required()}


def _former(section: type[Section]) -> dict[str, Any]:
    given = {name: value for base in reversed(section.__mro__) for name, value in vars(base).get("FORMER_DEFAULTS", {}).items()}
    return {name: TypeAdapter(section.model_fields[name].rebuild_annotation()).validate_python(value) for name, value in given.items()}


def _of_keys(section: Section, defaults: dict[str, Any], prefix: str) -> Iterator[Key]:
    own = type(section)
    for name in own.model_fields:
        path, value, default = f"{prefix}{name}", getattr(section, name), defaults.get(name, Required)
        if path in NO_EFFECT_ON_RESULT:
            continue
        plain = as_json(own, name, value)
        parts = value if isinstance(value, tuple) else (value,)
        if path in _CORPORA:
            yield Key(path, _corpus(plain), _corpus(as_json(own, name, default)))
        elif isinstance(plain, dict) and isinstance(parts[0], Section):
            yield from _of_section(path, parts[0], default)
        elif parts and isinstance(parts[0], Section) and isinstance(plain, list):
            fits = isinstance(default, tuple) and len(default) == len(parts)
            yield Key(path, len(parts), len(parts) if fits else Required)
            for number, part in enumerate(parts):
                yield from _of_section(f"{path}[{number}]", part, default[number] if fits else Required)
        else:
            yield Key(path, plain, Required if default is Required else as_json(own, name, default))


def _of_section(path: str, section: Section, default: Any) -> Iterator[Key]:
    default = default[0] if isinstance(default, tuple) and len(default) == 1 else default
    if isinstance(section, Kind):
        yield Key(f"{path}.kind", section.kind, default.kind if isinstance(default, Kind) else Required)
    elif default is None:
        yield Key(path, GIVEN, None)
    own = type(section)
    at_place = {name: getattr(default, name) for name in own.model_fields} | _former(own) if type(default) is own else hash_defaults(own)
    yield from _of_keys(section, at_place, f"{path}.")


def _corpus(given: Any) -> Any:
    return given if given is None or (isinstance(given, str) and given in built_in_corpora()) else "files"
