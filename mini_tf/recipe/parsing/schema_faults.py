"""Convert pydantic's validation errors to plain messages: one per key, with its path."""

import re
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from mini_tf.recipe.values import Scalar, describe, fit, members, number, show
from mini_tf.system.errors import suggest


class Fault(NamedTuple):
    """A validation error. type: missing, no_such_key, no_such_kind, value (of a field) or rule (between fields)."""

    type: str
    path: tuple[str | int, ...]
    message: str
    input: Any
    depends: tuple[tuple[str | int, ...], ...] = ()
    """The other keys that a rule depends on."""


def invalid(message: str, type: str = "value") -> PydanticCustomError:
    """The error that a validator raises; type: as in `Fault`."""
    return PydanticCustomError(type, "{message}", {"message": message})


def validation_error(title: str, faults: list[Fault]) -> ValidationError:
    """A pydantic error that keeps the path of each fault when raised inside a larger section."""
    lines: list[InitErrorDetails] = []
    for fault in faults:
        context = {"message": fault.message, "depends": fault.depends, "depth": len(fault.path)}
        kind = PydanticCustomError(fault.type, "{message}", context)
        lines.append({"type": kind, "loc": fault.path, "input": fault.input})
    return ValidationError.from_exception_data(title, lines)


def faults_of(error: ValidationError) -> list[Fault]:
    """The faults in a pydantic error."""
    faults = []
    for line in error.errors(include_url=False):
        kind, path, message = line["type"], line["loc"], line["msg"].removeprefix("Value error, ")
        context = line.get("ctx", {})
        section = path[: len(path) - context.get("depth", 0)]
        depends = tuple((*section, *key) for key in context.get("depends", ()))
        faults.append(Fault("rule" if kind == "value_error" else kind, path, message, line["input"], depends))
    return faults


def merge_faults(section: type[BaseModel], error: ValidationError) -> ValidationError:
    """The same error with one fault per key, instead of one for each member of a union type."""
    faults: list[Fault] = []
    invalid: dict[str, list[dict[str, Any]]] = {}
    for line, fault in zip(error.errors(include_url=False), faults_of(error), strict=True):
        name = str(fault.path[0]) if fault.path else ""
        field = section.model_fields.get(name)
        if not fault.path:
            of_mapping = fault.type in ("model_type", "model_attributes_type", "dict_type")
            faults.append(
                fault._replace(type="value", message=f"must be a mapping of keys{_such_as(section, fault)}")
                if of_mapping
                else fault
            )
        elif fault.type == "extra_forbidden" and len(fault.path) == 1:
            faults.append(Fault("no_such_key", fault.path, "no such key", None))
        elif (
            field is None
            or fault.type == "no_such_kind"
            or _is_from_section(field.annotation, fault, _depth(dict(line)))
        ):
            too_long = line["type"] == "too_long"
            faults.append(fault._replace(type="value", message=_too_long(line["ctx"])) if too_long else fault)
        else:
            invalid.setdefault(name, []).append(dict(line))
    for name, lines in invalid.items():
        faults.append(_invalid_value(section, name, lines))
    return validation_error(section.__name__, faults)


def _such_as(section: type[BaseModel], fault: Fault) -> str:
    """The rest of a message: the key that a word given for a whole section is likely meant for, and the word."""
    got = f", got {show(fault.input)}"
    if parts := re.fullmatch(r"(\w+):(\S+)", str(fault.input)):
        return f"{got}; a space belongs behind the colon: `{parts[1]}: {parts[2]}`"
    key = next((name for name in ("kind", "train") if name in section.model_fields), None)
    if key is None or not re.fullmatch(r"[\w./-]{1,40}", str(fault.input)):
        return got
    annotation = section.model_fields[key].annotation
    choices = get_args(annotation) if get_origin(annotation) is Literal else ()
    word = fault.input if not choices or fault.input in choices else choices[0]
    path = " or {path: FILE}" if choices and "path" in section.model_fields else ""
    return f", such as {{{key}: {word}}}{path}{got}"


def _is_from_section(annotation: Any, fault: Fault, depth: int) -> bool:
    """Whether a fault comes from validating the section at a key, not from the key's own type. depth: see `_depth`."""
    inside = len(fault.path) > 1
    if not _holds_sections(annotation) or (fault.type == "missing" and not inside):
        return False
    sections = [kind for kind, _ in members(annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]
    if not sections or all(kind in (*sections, type(None)) for kind, _ in members(annotation)):
        return True
    return inside and (depth > 0 or any(fault.path[1] in section.model_fields for section in sections))


def _depth(line: dict[str, Any]) -> int:
    """Number of keys of an error's path below the section that found it; 0 if no section did."""
    return int(line.get("ctx", {}).get("depth", 0))


def _holds_sections(annotation: Any) -> bool:
    for kind, _ in members(annotation):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return True
        if any(_holds_sections(arg) for arg in get_args(kind) if arg is not Ellipsis):
            return True
    return False


_RANGES = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
_WORDS = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}


def _invalid_value(section: type[BaseModel], name: str, lines: list[dict[str, Any]]) -> Fault:
    field = section.model_fields[name]
    expected = describe(field.annotation, field.metadata)
    for line in lines:
        if line["type"] == "missing":
            return Fault("missing", (name,), f"is missing; must be {expected}", None)
        if line["type"] in _RANGES:
            bound = _RANGES[line["type"]]
            fault = f"must be {_WORDS[bound]} {number(line['ctx'][bound])}, got {show(line['input'])}"
            return Fault("value", (name,), fault, line["input"])
        if line["type"] == "too_long":
            return Fault("value", (name,), _too_long(line["ctx"]), line["input"])
        if line["type"] in ("value", "value_error"):
            return Fault("value", (name,), line["msg"].removeprefix("Value error, "), line["input"])
    first = min(lines, key=lambda line: len(line["loc"]))
    value = first["input"]
    got = _got(value, lines)
    if len(first["loc"]) > 1 and get_origin(field.annotation) is dict:
        got = f"{got} for {show(first['loc'][1])}"
    return Fault("value", (name,), f"must be {expected}, got {got}{_suggestion(value, field)}", value)


def _too_long(context: dict[str, Any]) -> str:
    return f"must have at most {context['max_length']:,} entries, got {context['actual_length']:,}"


def _got(value: Any, lines: list[dict[str, Any]]) -> str:
    """The invalid value; for a list or mapping of the right type, the invalid entry."""
    inner = [(step, line["input"]) for line in lines for step in line["loc"][1:] if isinstance(step, int)]
    if inner and (isinstance(value, list | tuple) or value is inner[0][1]):
        return f"{show(inner[0][1])} as entry {inner[0][0] + 1}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value):,}"
    return show(value)


def _suggestion(value: Any, field: Any) -> str:
    """A correction for an invalid scalar, if one is known."""
    if not isinstance(value, str):
        return ""
    if (
        isinstance(value, Scalar)
        and value.quoted
        and not isinstance(fit(Scalar(value), field.annotation, field.metadata), str)
    ):
        return "; remove the quotes"
    if len(value) > 40 and value.strip("+-").isdigit():
        return "; the number is too long"
    if all(get_origin(kind) is tuple for kind, _ in members(field.annotation) if kind is not type(None)):
        return f"; a list is in brackets: [{'a, b' if value in ('true', 'false') else value[:40]}]"
    words = [str(word) for kind, _ in members(field.annotation) for word in get_args(kind) if isinstance(word, str)]
    hint = suggest(value, words)
    return f"; {hint}" if hint else ""
