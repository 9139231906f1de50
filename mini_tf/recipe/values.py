"""Convert the scalars of a recipe to the types of their fields, with `1e-3`, `10k`, `5%` and `30m`.

YAML's own conversions (yes = true, 010 = 8, 1e-3 = text) are not used: scalars arrive as text.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from math import frexp
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from mini_tf.system.errors import suggest
from mini_tf.system.safe_text import safe_text

SECONDS = "seconds"
"""Marks a number that may have a unit of time."""
_COUNTS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_TIMES = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DIGITS = r"(?:0|[1-9](?:_?[0-9])*)"
_NUMBER = re.compile(rf"([-+]?(?:{_DIGITS}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{{1,4}})?)([kMGT%smhd]?)")
_LONGEST = 40


class Scalar(str):
    """A scalar as written in a recipe; `quoted` text is never a number, true or null."""

    quoted: bool

    def __new__(cls, text: str, quoted: bool = False) -> "Scalar":
        made = super().__new__(cls, text)
        made.quoted = quoted
        return made


def is_blank(value: Any) -> bool:
    """Whether a value of a recipe is `key:` without a value, or null."""
    return isinstance(value, Scalar) and not value.quoted and value in ("", "~", "null")


def members(annotation: Any, metadata: Sequence[Any] = ()) -> list[tuple[Any, tuple[Any, ...]]]:
    """The members of a union type, each with its constraints."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *extra = get_args(annotation)
        flat = [m for e in extra for m in getattr(e, "metadata", [e])]
        return members(inner, (*metadata, *flat))
    if origin in (Union, UnionType):
        return [member for arg in get_args(annotation) for member in members(arg, metadata)]
    return [(annotation, tuple(metadata))]


def fit(value: Any, annotation: Any, metadata: Sequence[Any] = ()) -> Any:
    """`value` converted to the type; unchanged if it does not fit, so that the schema rejects it."""
    choices = members(annotation, metadata)
    if isinstance(value, Scalar):
        return _fit_scalar(value, choices)
    if isinstance(value, list):
        for kind, constraints in choices:
            args = get_args(kind)
            if get_origin(kind) is tuple:
                if args[-1] is not Ellipsis and len(args) != len(value):
                    continue
                each = [args[0]] * len(value) if args[-1] is Ellipsis else args
                return tuple(fit(v, a, constraints) for v, a in zip(value, each, strict=True))
    if isinstance(value, dict):
        for kind, _ in choices:
            if get_origin(kind) is dict:
                return {str(k): fit(v, get_args(kind)[1]) for k, v in value.items()}
    return value


def _fit_scalar(value: Scalar, choices: Sequence[tuple[Any, tuple[Any, ...]]]) -> Any:
    kinds = [kind for kind, _ in choices]
    if not value.quoted:
        if type(None) in kinds and is_blank(value):
            return None
        if bool in kinds and value in ("true", "false"):
            return value == "true"
        if int in kinds and (whole := whole_number(value)) is not None:
            return whole
        for kind, constraints in choices:
            if kind is float and (real := real_number(value, constraints)) is not None:
                return real
    if str in kinds or any(get_origin(kind) is Literal and value in get_args(kind) for kind in kinds):
        return str(value)
    return value


def _split(text: str) -> tuple[str, str] | None:
    match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST else None
    return (match[1].replace("_", ""), match[2]) if match else None


def whole_number(text: str) -> int | None:
    """An int from 1_000, 10k, 1.5M or 3e4; None for anything else, including 1.0 and 010."""
    parts = _split(text)
    if parts is None or parts[1] not in _COUNTS or ("." in parts[0] and not parts[1]):
        return None
    exact = Decimal(parts[0]) * _COUNTS[parts[1]]
    return int(exact) if exact == exact.to_integral_value() and abs(exact) < 2**63 else None


def real_number(text: str, constraints: Sequence[Any] = ()) -> float | None:
    """A finite float; also with k, M, G or T, with % for a share, with a unit for a time; else None."""
    parts = _split(text)
    if parts is None:
        return None
    number, unit = parts
    if SECONDS in constraints and unit in _TIMES:
        number = str(Decimal(number) * _TIMES[unit])
    elif unit == "%" and is_share(constraints):
        number = str(Decimal(number) / 100)
    elif unit in _COUNTS and SECONDS not in constraints:
        number = str(Decimal(number) * _COUNTS[unit])
    elif unit:
        return None
    real = float(number)
    return real if abs(real) != float("inf") else None


def is_share(constraints: Sequence[Any]) -> bool:
    """True for a number with the upper bound 1."""
    bounds = [getattr(c, name) for c in constraints for name in ("le", "lt") if getattr(c, name, None) is not None]
    return any(bound == 1 for bound in bounds)


def describe(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """A type as text: "a whole number or auto"."""
    return _describe(annotation, metadata, plural=False)


def _describe(annotation: Any, metadata: Sequence[Any], plural: bool) -> str:
    kinds = [(kind, constraints) for kind, constraints in members(annotation, metadata) if kind is not type(None)]
    words = list(dict.fromkeys(word for kind, constraints in kinds for word in _choices(kind, constraints, plural)))
    if len(words) > 1 and all(get_origin(kind) is Literal for kind, _ in kinds):
        return "one of " + ", ".join(words)
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _choices(kind: Any, constraints: Sequence[Any], plural: bool) -> list[str]:
    """The alternatives of one member of a union type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return [str(arg) for arg in args]
    if kind is bool:
        return ["true", "false"]
    if origin is tuple:
        items = _describe(args[0], constraints, plural=True)
        return [f"a list of {items}" if args[-1] is Ellipsis else f"a list of {len(args)} {items}"]
    if origin is dict:
        return ["a mapping of names to text"]
    if kind is float and SECONDS in constraints:
        return ["times such as 90s or 30m" if plural else "a time such as 90s or 30m"]
    if kind is float and is_share(constraints):
        return ["shares such as 0.05 or 5%" if plural else "a share such as 0.05 or 5%"]
    known = {
        int: ("a whole number", "whole numbers"),
        float: ("a finite number", "finite numbers"),
        str: ("text", "texts"),
        Any: ("anything", "anything"),
    }
    return [known.get(kind, ("a mapping", "mappings"))[plural]]


def show(value: Any) -> str:
    """A value as quoted in messages: short, on one line."""
    if isinstance(value, dict | list | tuple):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None or value == "":
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(str(value)) if isinstance(value, str) else str(value)
    text = text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters)"
    return f"the text {text}" if getattr(value, "quoted", False) else text


def one_line(text: str, most: int = 200) -> str:
    """A name, path or argument as quoted in messages: on one line, without control characters, truncated."""
    text = text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
    return safe_text(text).replace("\n", "\\n").replace("\t", "\\t")


def number(value: float) -> str:
    """A number as text: 1000000, not 1e+06; 2^63, not 9.22337e+18."""
    if abs(value) >= 1e15 and frexp(value)[0] == 0.5:
        return f"2^{frexp(value)[1] - 1}"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else f"{value:g}"


def no_such_class(name: str, names: Sequence[str]) -> str:
    """The message for a name that is not one of the classes `names`."""
    known = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"no such class {show(name)}; {suggest(name, names, f'there are {known}')}"
