"""The recipe keys that affect the result of a run, with their values and defaults, from which the run's id is hashed.

A run's id hashes the keys whose value is not the default (`run/identity.py`), so a new key with a default changes no
id. If a default is changed, `FORMER_DEFAULTS` of the section keeps the old one: then the old value is omitted from the
hash, and the new one is hashed.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from mini_tf.recipe.corpora import built_in_corpora
from mini_tf.recipe.kinds import Kind, Section
from mini_tf.recipe.recipe import Recipe

NO_EFFECT_ON_RESULT = {
    *("log", "checkpoint", "generate", "expect", "runtime.device"),
    *("runtime.reduce", "runtime.shard", "runtime.timeout"),
    *("train.micro_batch_size", "train.on_nonfinite", "train.most_skips", "train.stop_above"),
    "eval.baseline",
    *("data.home", "data.errors", "tokenizer.path", "tokenizer.source.path", "model.init_from"),
}
"""Sections and keys that do not affect the result: reports, samples and baselines; the order of sums and dropout draws;
how processes share the work; ending a run early; names of files and runs, whose contents are hashed instead
(data.errors affects the contents; data.home is only a hint).
"""
_CORPORA = {"data.train", "data.val"}
"""Only names of built-in corpora are hashed; files are hashed by their contents."""
_ONE_VALUE = {"data.split"}
"""A section that may be written as text is one value in either form."""

GIVEN = "given"
"""The hashed value of an optional section that is not null."""


class Required:
    """Marks a key without a default."""


class Key(NamedTuple):
    """A dotted key name, its value and its default as JSON; the default is `Required` if there is none."""

    name: str
    value: Any
    default: Any


def result_keys(recipe: Recipe) -> list[Key]:
    """Every key that affects the result; `attention[1].window` is a key of the second kind of a list.

    Defaults of a kind's keys are those of the field's default if that has the same kind, else those of the kind's
    settings. An optional section adds a key for whether it is given, since its keys may all have their defaults; a list
    of kinds adds its length.
    """
    return list(_of_keys(recipe, hash_defaults(type(recipe)), ""))


def hash_defaults(section: type[Section]) -> dict[str, Any]:
    """The defaults that are omitted from the hash: `Section.FORMER_DEFAULTS`, else the current defaults."""
    return _defaults(section) | _former(section)


def as_json(section: type[Section], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a section's keys as in a recipe, as JSON."""
    return section.model_construct(**values).model_dump(mode="json", include=set(values), warnings=False)


def _defaults(section: type[Section]) -> dict[str, Any]:
    fields = section.model_fields.items()
    return {name: field.get_default(call_default_factory=True) for name, field in fields if not field.is_required()}


def _former(section: type[Section]) -> dict[str, Any]:
    given = {name: value for base in reversed(section.__mro__) for name, value in vars(base).get("FORMER_DEFAULTS", {}).items()}
    return {name: TypeAdapter(section.model_fields[name].rebuild_annotation()).validate_python(value) for name, value in given.items()}


def _of_keys(section: Section, defaults: dict[str, Any], prefix: str) -> Iterator[Key]:
    own = type(section)
    names = [name for name in own.model_fields if f"{prefix}{name}" not in NO_EFFECT_ON_RESULT]
    given = as_json(own, {name: getattr(section, name) for name in names})
    otherwise = as_json(own, {name: defaults[name] for name in names if name in defaults})
    for name in names:
        path, value, default, plain = f"{prefix}{name}", getattr(section, name), defaults.get(name, Required), given[name]
        parts = value if isinstance(value, tuple) else (value,)
        if path in _CORPORA:
            yield Key(path, _corpus(plain), _corpus(otherwise.get(name)))
        elif isinstance(plain, dict) and isinstance(parts[0], Section) and path not in _ONE_VALUE:
            yield from _of_section(path, parts[0], default)
        elif parts and isinstance(parts[0], Section) and isinstance(plain, list):
            fits = isinstance(default, tuple) and len(default) == len(parts)
            yield Key(path, len(parts), len(parts) if fits else Required)
            for number, part in enumerate(parts):
                yield from _of_section(f"{path}[{number}]", part, default[number] if fits else Required)
        else:
            yield Key(path, plain, otherwise.get(name, Required))


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
    given = given.get("kind") if isinstance(given, dict) else given
    return given if given is None or (isinstance(given, str) and given in built_in_corpora()) else "files"
