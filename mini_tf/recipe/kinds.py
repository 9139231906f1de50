"""Packages of kinds: every file of such a package is one choice, and the file's name is the word a recipe writes.

`mini_tf/attention/window.py` is `attention: {kind: window}`. Listing the folder, and the entry points of installed packages, is
listing the choices; only the chosen file is imported, here and nowhere else, and only after its word was found in the listing.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, ModelWrapValidatorHandler, model_validator
from pydantic import ValidationError as Faults
from pydantic_core import PydanticCustomError, core_schema

from mini_tf.recipe.entry_points import AddedKind, KindFault, added_kinds, adding
from mini_tf.recipe.parsing.schema_faults import Fault, gather, refusal
from mini_tf.recipe.values import Written, fit, near, one_line, show
from mini_tf.system.cache import sha256_of

Self = TypeVar("Self", bound="Section")


class Rule(NamedTuple):
    """A rule that is broken: the key at fault, the fault, and the other keys that the rule looks at.

    Where one of those is faulty itself, the rule has seen its default, and stays silent. Keys may be dotted into a part
    ("train.stream"); "" is the section itself; that of a kind ("attention") stands for which kind it is.
    """

    key: str
    message: str
    depends: tuple[str, ...] = ()


Rules = Iterable[Rule | tuple[str, str]]
"""A rule that looks at its own key alone may be a plain pair of key and fault."""


class Section(BaseModel):
    """A part of a recipe: strict, frozen, every field with its meaning as the docstring below it.

    NonEmptyText from a recipe (`Written`) is read by the type of its field; values from Python must have that type already.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False)

    FORMER_DEFAULTS: ClassVar[Mapping[str, Any]] = {}
    """Keys whose default is another one than at first, with the first one: runs keep the ids that they had then (`deciding.py`)."""

    @classmethod
    def inherited(cls, below: Mapping[str, Any], given: Set[str]) -> dict[str, Any]:
        """Of the keys of an earlier level (with their YAML nodes), those that still hold where a later level gives values for `given`."""
        return dict(below)

    def rules(self) -> Rules:
        """What fields must be to each other: every rule that is broken. Called once all fields are valid."""
        return ()

    def uses(self) -> Iterable["Kind"]:
        """Kinds that it names by a word, rather than by a field of their own."""
        return ()

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls: type[Self], given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        data = cls._read(given)
        try:
            made = handler(data)
        except Faults as error:
            raise gather(cls, error) from None
        rules = (Rule(*rule) for rule in made.rules())
        broken = [Fault("rule", _path(rule.key), rule.message, None, tuple(map(_path, rule.depends))) for rule in rules]
        if broken:
            raise refusal(cls.__name__, broken)
        return made

    @classmethod
    def _read(cls, given: Any) -> Any:
        """`given` with every scalar read by its field's type; a section left out or left empty is one of defaults."""
        if _is_blank(given):
            given = {}
        if not isinstance(given, dict):
            return given
        data: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            if name in given:
                data[name] = _with_default_kind(fit(given[name], field.annotation, field.metadata), field)
            elif field.is_required() and isinstance(field.annotation, type) and issubclass(field.annotation, Section):
                data[name] = {}
            elif field.is_required() and any(isinstance(mark, KindOf) for mark in field.metadata):
                data[name] = None  # KindOf then says which kinds there are
        return data | {name: value for name, value in given.items() if name not in data}


class Kind(Section):
    """The settings of one kind; a subclass named `Settings` in each file of a package of kinds."""

    PACKAGE: ClassVar[str] = ""
    """The package of kinds that it is one of, as its contract declares it ("attention")."""

    @property
    def kind(self) -> str:
        """The word a recipe writes: the name of the file the settings were defined in."""
        return type(self).__module__.rpartition(".")[2]

    @classmethod
    def lacking(cls) -> str | None:
        """What it names that there is not, as a sentence that goes on from `it`; None where all is there."""
        return None


def _path(key: str) -> tuple[str, ...]:
    return tuple(key.split(".")) if key else ()


def _is_blank(value: Any) -> bool:
    """True for `key:` with nothing behind it, and for null."""
    return isinstance(value, Written) and not value.quoted and value in ("", "~", "null")


def _with_default_kind(value: Any, field: Any) -> Any:
    """A mapping that names no kind is about the field's default kind, and a kind left empty is that one."""
    given = {} if _is_blank(value) else value
    if not isinstance(given, dict) or "kind" in given or field.is_required():
        return value
    default = field.get_default(call_default_factory=True)
    if isinstance(default, tuple) and len(default) == 1:
        default = default[0]
    return {"kind": default.kind} | given if isinstance(default, Kind) else value


@cache
def listing(package: str) -> tuple[str, ...]:
    """The words of a package of kinds, sorted: its own and those that installed packages add."""
    return tuple(sorted({*_own(package), *(kind.word for kind in added_kinds() if kind.package == package)}))


@cache
def _own(package: str) -> frozenset[str]:
    found = None
    with suppress(ModuleNotFoundError):  # an entry point may name any group
        found = importlib.util.find_spec(f"mini_tf.{package}")  # the package itself is not imported
    folders = [] if found is None else found.submodule_search_locations or ()
    return frozenset(file.stem for folder in folders for file in Path(folder).glob("*.py") if not file.stem.startswith("_"))


def clear_kind_caches() -> None:
    """Look again where kinds are, after a folder or a package of them was added."""
    for found in (listing, _own, added_kinds):
        found.cache_clear()


def settings_of(package: str, word: str) -> type[Kind]:
    """The `Settings` class behind a word.

    ValueError where the package has no such word; KindFault where two have it, or an installed package has none that can be used.
    """
    if word not in listing(package):
        raise ValueError(f"no such kind {word!r}")
    added = adding(package, word, word in _own(package))
    if added is None:
        return importlib.import_module(f"mini_tf.{package}.{word}").Settings  # type: ignore[no-any-return]
    try:
        found = getattr(importlib.import_module(added.module), "Settings", None)
    except (Exception, SystemExit) as error:  # whatever the code of others does
        raise added.unusable(f"{type(error).__name__}: {one_line(str(error))}") from error
    return _checked(found, added)


def _checked(found: Any, added: AddedKind) -> type[Kind]:
    """The `Settings` that an installed package's module has."""
    if added.module.rpartition(".")[2] != added.word:
        raise added.unusable(f"the last name of the module must be the word, {show(added.word)}")
    if not isinstance(found, type) or not issubclass(found, Kind) or found.__module__ != added.module:
        raise added.unusable("the module must define a class Settings, as the kinds of minitf do")
    if added.package != found.PACKAGE:
        raise added.unusable(f"its Settings must be a kind of {added.package}, and is one of {found.PACKAGE or 'no package'}")
    if (lacking := found.lacking()) is not None:
        raise added.unusable(f"it {lacking}")
    return found


def usable(package: str, word: str) -> type[Kind] | None:
    """`settings_of`, but None where there is no such kind or it cannot be used, which is told where a recipe is checked."""
    try:
        return settings_of(package, word) if word in listing(package) else None
    except KindFault:
        return None


def kinds_of(package: str) -> dict[str, type[Kind]]:
    """Every kind of a package by its word, imported; without those of installed packages that cannot be used."""
    return {word: settings for word in listing(package) if (settings := usable(package, word)) is not None}


def added_kinds_in(section: Section) -> frozenset[AddedKind]:
    """The kinds of installed packages that a recipe, or a section of one, is made of."""
    found = {kind for kind in added_kinds() if isinstance(section, Kind) and type(section).__module__ == kind.module}
    found.update(*map(added_kinds_in, section.uses()))
    for name in type(section).model_fields:
        value = getattr(section, name)
        parts = value if isinstance(value, tuple) else (value,)
        found.update(*(added_kinds_in(part) for part in parts if isinstance(part, Section)))
    return frozenset(found)


def cache_identity(kind: Kind) -> list[Any]:
    """What a cache knows the results of a kind by: its word and settings, and the files beside it where an installed package adds it."""
    known = [kind.kind, kind.model_dump(mode="json")]
    if not any(added.module == type(kind).__module__ for added in added_kinds()):
        return known  # whoever changes ours counts up the number of a format
    files = Path(sys.modules[type(kind).__module__].__file__ or "").parent.glob("*.py")
    return [*known, {file.name: sha256_of(file) for file in files}]


def default_kind(package: str, word: str) -> Callable[[], Any]:
    """A `default_factory` for a field of a kind: the word's settings, imported only when they are needed."""
    return lambda: settings_of(package, word)()


@dataclass(frozen=True)
class KindOf:
    """Marks a field that holds one kind of a package: `Annotated[MixerSettings, KindOf("attention")]`.

    Takes a word, a mapping with `kind`, or a Kind. Faults keep the place where they stand inside the kind.
    """

    package: str

    def read(self, value: Any) -> Kind:
        """The Kind that `value` says."""
        if isinstance(value, Kind):
            return value
        given = dict(value) if isinstance(value, dict) else {}
        word = given.pop("kind", None) if isinstance(value, dict) else value
        words = listing(self.package)
        if not isinstance(word, str) or not word:
            got = "" if word is None else f", got {show(word)}"
            raise PydanticCustomError("no_such_kind", "{message}", {"message": f"must name a kind, one of {', '.join(words)}{got}"})
        if word not in words:
            meant = near(word, words)
            way = f"did you mean {meant!r}?" if meant else f"use one of {', '.join(words)}"
            raise PydanticCustomError("no_such_kind", "{message}", {"message": f"no such kind {show(str(word))}; {way}"})
        try:
            settings = settings_of(self.package, word)
        except KindFault as fault:
            raise PydanticCustomError("no_such_kind", "{message}", {"message": f"{fault.message}; {fault.hint}"}) from None
        return settings.model_validate(given)

    @staticmethod
    def write(value: Kind, info: core_schema.SerializationInfo) -> dict[str, Any]:
        return {"kind": value.kind} | value.model_dump(mode=info.mode)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        writer = core_schema.plain_serializer_function_ser_schema(self.write, info_arg=True)
        return core_schema.no_info_plain_validator_function(self.read, serialization=writer)

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        kinds = kinds_of(self.package)
        choices: list[dict[str, Any]] = [{"enum": list(kinds)}]
        for word, chosen in kinds.items():
            reference = handler(chosen.__pydantic_core_schema__)
            settings = handler.resolve_ref_schema(reference)
            settings["title"] = word
            settings["properties"] = {"kind": {"const": word}} | settings.get("properties", {})
            choices.append(reference)
        return {"anyOf": choices}


class OneOrMore:
    """Marks a tuple that a recipe may also write as one item, and that is written back as one item if it has one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def spread(value: Any) -> Any:
            if value in ([], ()):
                raise PydanticCustomError("value", "must have at least one item")
            return tuple(value) if isinstance(value, list | tuple) else (value,)

        def fold(value: Any, write: Callable[[Any], Sequence[Any]]) -> Any:
            items = write(value)
            return items[0] if len(items) == 1 else items

        writer = core_schema.wrap_serializer_function_ser_schema(fold)
        return core_schema.no_info_before_validator_function(spread, handler(source), serialization=writer)

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        several = handler(schema)
        return {"anyOf": [several["items"], several]}
