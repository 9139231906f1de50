"""Packages of kinds: each file of such a package is one kind, named as in a recipe.

`mini_tf/attention/window.py` is `attention: {kind: window}`. The folders of minitf, its papers and installed packages
list the kinds (`kind_folders.py`); only the chosen module is imported, only here, and only if its name is listed.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    model_validator,
)
from pydantic import ValidationError as Faults
from pydantic_core import core_schema

from mini_tf.recipe.kind_folders import (
    FoundKind,
    KindFault,
    added_kinds,
    field_docstrings,
    find_kind,
    kinds_by_word,
    own_folders,
)
from mini_tf.recipe.parsing.schema_faults import Fault, invalid, merge_faults, validation_error
from mini_tf.recipe.values import fit, is_blank, one_line, show
from mini_tf.system.errors import suggest

Self = TypeVar("Self", bound="Section")
Share = Annotated[float, Field(ge=0, le=1)]
"""A fraction. Every number with the upper bound 1 may also be written in percent."""


class Rule(NamedTuple):
    """A broken rule: the invalid key, the message, and the other keys that the rule depends on.

    The message is dropped if one of those is itself invalid, since the rule then saw its default. Keys may be dotted
    ("train.stream"); "" is the section itself; the key of a kind ("attention") stands for which kind it is.
    """

    key: str
    message: str
    depends: tuple[str, ...] = ()


Rules = Iterable[Rule | tuple[str, str]]
"""A rule without dependencies may be a pair of key and message."""


class Section(BaseModel):
    """Base class of recipe sections: strict and frozen; the docstring below a field is its help text.

    Scalars of a recipe (`Scalar`) are converted to the type of their field; values from Python must already have it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    TRAINING_KEYS: ClassVar[frozenset[str]] = frozenset()
    """Keys that act only in training or on initial weights, beside those of base classes (see `inference_settings`)."""

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """The docstring of each field, from the source; pydantic would read it for every class at its import."""
        sections = [base for base in reversed(cls.__mro__) if issubclass(base, Section)]
        return {name: text for section in sections for name, text in field_docstrings(section).items()}

    @classmethod
    def inherited(cls, below: Mapping[str, Any], keys: Set[str]) -> dict[str, Any]:
        """The keys of an earlier level (with YAML nodes) that stay in effect if a later level sets `keys`."""
        return dict(below)

    def rules(self) -> Rules:
        """All broken rules between fields. Called once all fields are valid."""
        return ()

    def uses(self) -> Iterable["Kind"]:
        """Kinds that the section refers to by name, not in a field."""
        return ()

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls: type[Self], section: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        data = cls._read(section)
        try:
            made = handler(data)
        except Faults as error:
            raise merge_faults(cls, error) from None
        rules = (Rule(*rule) for rule in made.rules())
        broken = [Fault("rule", _path(rule.key), rule.message, None, tuple(map(_path, rule.depends))) for rule in rules]
        if broken:
            raise validation_error(cls.__name__, broken)
        return made

    @classmethod
    def _read(cls, section: Any) -> Any:
        """`section` with each scalar converted to its field's type; a missing or empty section has its defaults."""
        if is_blank(section):
            section = {}
        if not isinstance(section, dict):
            return section
        data: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            if name in section:
                data[name] = _with_default_kind(fit(section[name], field.annotation, field.metadata), field)
            elif field.is_required() and isinstance(field.annotation, type) and issubclass(field.annotation, Section):
                data[name] = {}
            elif field.is_required() and any(isinstance(mark, KindOf) for mark in field.metadata):
                data[name] = None  # KindOf then lists the kinds in its error
        return data | {name: value for name, value in section.items() if name not in data}


class Kind(Section):
    """Base class of the settings of a kind; each file of a package of kinds defines a subclass named `Settings`."""

    PACKAGE: ClassVar[str] = ""
    """The package of kinds, set by the base settings of the package ("attention")."""
    ALIASES: ClassVar[tuple[str, ...]] = ()
    """Other names of the kind, which are answered with its name."""

    @property
    def kind(self) -> str:
        """The kind's name in a recipe: the name of the file that defines the settings."""
        return type(self).__module__.rpartition(".")[2]

    @classmethod
    def missing_dependency(cls) -> str | None:
        """A message that continues "it ...", about a kind that it refers to and that does not exist; else None."""
        return None


def _path(key: str) -> tuple[str, ...]:
    return tuple(key.split(".")) if key else ()


def _with_default_kind(value: Any, field: Any) -> Any:
    """Add the field's default kind to a mapping without `kind`, or to an empty value."""
    mapping = {} if is_blank(value) else value
    if not isinstance(mapping, dict) or "kind" in mapping or field.is_required():
        return value
    default = field.get_default(call_default_factory=True)
    if isinstance(default, tuple) and len(default) == 1:
        default = default[0]
    return {"kind": default.kind} | mapping if isinstance(default, Kind) else value


def listing(package: str) -> tuple[str, ...]:
    """The names of all kinds of a package, sorted: those of minitf, of its papers and of installed packages."""
    return tuple(sorted(kinds_by_word(package)))


def settings_of(package: str, word: str) -> type[Kind]:
    """The `Settings` class of a kind.

    Raises ValueError if there is no such kind, KindFault if there are two or if its module cannot be used.
    """
    if word not in listing(package):
        raise ValueError(f"no such kind {word!r}")
    kind = find_kind(package, word)
    if kind.folder == own_folders()[0]:
        return importlib.import_module(kind.module).Settings  # type: ignore[no-any-return]
    return _checked(getattr(added_module(kind), "Settings", None), kind)


def added_module(kind: FoundKind) -> ModuleType:
    """The module of a listed kind of a paper or a package. KindFault if it cannot be imported."""
    try:
        return importlib.import_module(kind.module)
    except (Exception, SystemExit) as error:  # third-party code may raise anything
        raise kind.unusable(f"{type(error).__name__}: {one_line(str(error))}") from error


def _checked(settings: Any, kind: FoundKind) -> type[Kind]:
    """Check the `Settings` of a module of a paper or an installed package."""
    if not isinstance(settings, type) or not issubclass(settings, Kind) or settings.__module__ != kind.module:
        raise kind.unusable("the module must define a class Settings like minitf's kinds")
    if kind.package != settings.PACKAGE:
        raise kind.unusable(f"its Settings must be a kind of {kind.package}, not of {settings.PACKAGE or 'no package'}")
    if (missing := settings.missing_dependency()) is not None:
        raise kind.unusable(f"it {missing}")
    return settings


def usable_settings(package: str, word: str) -> type[Kind] | None:
    """`settings_of`, or None if the kind does not exist or cannot be used, which recipe validation reports."""
    try:
        return settings_of(package, word) if word in listing(package) else None
    except KindFault:
        return None


def kinds_of(package: str) -> dict[str, type[Kind]]:
    """The settings of all kinds of a package by name; without unusable kinds of installed packages."""
    return {word: settings for word in listing(package) if (settings := usable_settings(package, word)) is not None}


def added_kinds_in(section: Section) -> frozenset[FoundKind]:
    """The kinds of installed packages that a recipe, or a section, uses."""
    added = {kind for kind in added_kinds() if isinstance(section, Kind) and type(section).__module__ == kind.module}
    added.update(*map(added_kinds_in, section.uses()))
    for name in type(section).model_fields:
        value = getattr(section, name)
        parts = value if isinstance(value, tuple) else (value,)
        added.update(*(added_kinds_in(part) for part in parts if isinstance(part, Section)))
    return frozenset(added)


def cache_identity(kind: Kind) -> list[Any]:
    """The cache key of a kind: name and settings, and for kinds of installed packages the files of the package."""
    # Changes of built-in kinds increase a format number instead.
    files = (added.files for added in added_kinds() if added.module == type(kind).__module__)
    return [kind.kind, kind.model_dump(mode="json"), *files]


def default_kind(package: str, word: str) -> Callable[[], Any]:
    """A `default_factory` for a field of a kind, which imports the kind when called."""
    return lambda: settings_of(package, word)()


@dataclass(frozen=True)
class KindOf:
    """Marks a field that holds one kind of a package: `Annotated[MixerSettings, KindOf("attention")]`.

    Accepts a name, a mapping with `kind`, or a Kind. Errors keep their path inside the kind.
    """

    package: str

    def written(self, name: str) -> str:
        """A kind as a recipe writes it; `name`: that of its file."""
        return name

    def _names(self) -> dict[str, str]:
        """The names of the files by the words that a recipe writes."""
        return {self.written(name): name for name in listing(self.package)}

    def words(self) -> tuple[str, ...]:
        """Every kind of the package, as a recipe writes it."""
        return tuple(self._names())

    def settings(self, word: str) -> type[Kind] | None:
        """The settings of a kind as a recipe writes it; None if it does not exist or cannot be used."""
        return usable_settings(self.package, name) if (name := self._names().get(word)) else None

    def kinds(self) -> dict[str, type[Kind]]:
        """The settings of every usable kind, as a recipe writes it."""
        return {self.written(name): settings for name, settings in kinds_of(self.package).items()}

    def read(self, value: Any) -> Kind:
        if isinstance(value, Kind):
            return value
        fields = dict(value) if isinstance(value, dict) else {}
        word = fields.pop("kind", None) if isinstance(value, dict) else value
        words = self._names()
        if not isinstance(word, str) or not word:
            got = f"; add kind: {next(iter(words))}" if fields else "" if word is None else f", got {show(word)}"
            raise invalid(f"must be a kind, one of {', '.join(words)}{got}", "no_such_kind")
        if word not in words:
            aliases = {alias: name for name, kind in self.kinds().items() for alias in kind.ALIASES}
            meant = aliases.get(word.lower().replace("-", "_"), word)
            way = suggest(meant, words, f"use one of {', '.join(words)}", repr)
            raise invalid(f"no such kind {show(str(word))}; {way}", "no_such_kind")
        try:
            settings = settings_of(self.package, words[word])
        except KindFault as fault:
            raise invalid(f"{fault.message}; {fault.hint}", "no_such_kind") from None
        return settings.model_validate(fields)

    def write(self, value: Kind, info: core_schema.SerializationInfo) -> dict[str, Any]:
        return {"kind": value.kind} | value.model_dump(mode=info.mode, exclude_defaults=info.exclude_defaults)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        writer = core_schema.plain_serializer_function_ser_schema(self.write, info_arg=True)
        return core_schema.no_info_plain_validator_function(self.read, serialization=writer)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        kinds = self.kinds()
        choices: list[dict[str, Any]] = [{"enum": list(kinds)}]
        for word, chosen in kinds.items():
            reference = handler(chosen.__pydantic_core_schema__)
            settings = handler.resolve_ref_schema(reference)
            settings["title"] = word
            settings["properties"] = {"kind": {"const": word}} | settings.get("properties", {})
            choices.append(reference)
        return {"anyOf": choices}


class OneOrMore:
    """Marks a tuple that may be given as a single item, and is dumped as one if it has one item."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def to_tuple(value: Any) -> Any:
            if value in ([], ()):
                raise invalid("must have at least one item")
            return tuple(value) if isinstance(value, list | tuple) else (value,)

        def unwrap_single(value: Any, write: Callable[[Any], Sequence[Any]]) -> Any:
            items = write(value)
            return items[0] if len(items) == 1 else items

        writer = core_schema.wrap_serializer_function_ser_schema(unwrap_single)
        return core_schema.no_info_before_validator_function(to_tuple, handler(source), serialization=writer)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        several = handler(schema)
        return {"anyOf": [several["items"], several]}
