"""Checks the shapes in signatures of some packages at every call: jaxtyping's import hook, with a decorator that does
less.

jaxtyping's own binds the arguments and checks them twice, for its messages. Here beartype checks the arguments before a
call and the result after it, once each, in one scope of axis names; signatures without shapes are left to mypy. What it
looks at are types, shapes and dtypes: a call that has all of an earlier one is not looked at again.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import jaxtyping
import torch

PAPERS = Path(__file__).parents[1] / "mini_tf" / "papers"
_SCOPE = jaxtyping.jaxtyped("context")


def layers_of_papers() -> list[str]:
    """Modules of the mixers and positions of papers, and of the layers that these are made of."""
    papers = [
        path for path in sorted(PAPERS.glob("*")) if any((path / name).is_dir() for name in ("attention", "positions"))
    ]
    parts = [path / name for path in papers for name in ("attention", "positions")] + [
        file for path in papers for file in path.glob("*.py")
    ]
    return [".".join(["mini_tf", "papers", *part.relative_to(PAPERS).with_suffix("").parts]) for part in parts]


def install(*packages: str) -> None:
    """Before anything of these packages is imported."""
    jaxtyping.install_import_hook(packages, "beartype.beartype")
    jaxtyping.jaxtyped = checked  # which the hook writes above every class and function


def checked(found: Any = None, *, typechecker: Callable[[FunctionType], Callable[..., Any]]) -> Any:
    """A function whose signature is checked; a dataclass whose __init__ is; anything else as it is."""
    if found is None:
        return functools.partial(checked, typechecker=typechecker)
    if inspect.isclass(found):
        if dataclasses.is_dataclass(found) and "__init__" in vars(found):
            found.__init__ = checked(found.__init__, typechecker=typechecker)
        return found
    if not isinstance(found, FunctionType) or torch.compiler.is_compiling():
        return found
    if not any("jaxtyping." in repr(annotation) for annotation in found.__annotations__.values()):
        return found
    check, passed = typechecker(found), dict[Any, set[Any]]()

    @functools.wraps(found)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # a compiler cannot trace the check
            return found(*args, **kwargs)
        given = _checked_of(args), _checked_of(kwargs)
        results = passed.get(given)
        if results is None:
            with _SCOPE:
                result = check(*args, **kwargs)
            passed[given] = {_checked_of(result)}
        elif (of_result := _checked_of(result := found(*args, **kwargs))) not in results:
            with _SCOPE:
                typechecker(functools.wraps(found)(lambda *args, **kwargs: result))(*args, **kwargs)
            results.add(of_result)
        return result

    return call


def _checked_of(value: Any) -> Any:
    """All of a value that a check of types and shapes can see."""
    kind = type(value)
    seen_as = _seen_as(kind)
    if seen_as is None:
        return kind
    if seen_as is torch.Tensor:
        return kind, value.shape, value.dtype
    if seen_as is dict:
        return kind, *((name, _checked_of(part)) for name, part in value.items())
    return (kind, value) if kind is str else (kind, *map(_checked_of, value))  # a string may be one of a Literal


@functools.cache
def _seen_as(kind: type) -> type | None:
    """The type of which more than the type itself is seen."""
    seen = (torch.Tensor, tuple, list, dict)
    return str if kind is str else next((each for each in seen if issubclass(kind, each)), None)
