"""What is always the same in the code of one model: conditions on its settings and on what its modules are made of."""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from torch import nn

from mini_tf.recipe.kinds import Section


class Known:
    """flags: values of names and functions; objects: the modules of the model, and its settings."""

    def __init__(self, flags: Mapping[str, bool], model: nn.Module, settings: Sequence[Section]) -> None:
        self._flags, self._settings = flags, settings
        self._modules = [*model.modules()]
        classes = {cls for module in self._modules for cls in type(module).__mro__}
        self._changing = {"training"}.union(*(_assigned_later(cls.__module__) for cls in classes if not _of_torch(cls)))

    def truth(self, test: ast.expr, cls: type | None) -> bool | None:
        """The value of a condition in a method of a class; None: it is not known."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            value = self.truth(test.operand, cls)
            return None if value is None else not value
        if isinstance(test, ast.BoolOp):
            decides = isinstance(test.op, ast.Or)
            values = [self.truth(value, cls) for value in test.values]
            return decides if decides in values else not decides if set(values) == {not decides} else None
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
            other, op = test.comparators[0].value, type(test.ops[0])
            compared = {ast.Is: True, ast.Eq: True, ast.IsNot: False, ast.NotEq: False}.get(op)
            equal = self._common(test.left, cls, lambda value: value == other if other is not None else value is None)
            return None if compared is None or equal is None else equal == compared
        if isinstance(test, ast.Name | ast.Call):
            return self._flags.get(getattr(getattr(test, "func", test), "id", ""))
        return self._common(test, cls, bool)

    def _common(self, part: ast.expr, cls: type | None, test: Callable[[Any], bool]) -> bool | None:
        """What a test says of `self.NAME` or `settings.NAME`, if it says the same of all objects that there are."""
        if not isinstance(part, ast.Attribute) or not isinstance(part.value, ast.Name) or part.attr in self._changing:
            return None
        values: list[Any] = []
        if part.value.id == "settings":
            values = [getattr(one, part.attr) for one in self._settings if part.attr in type(one).model_fields]
        elif part.value.id == "self" and cls is not None:
            own = [one for one in (*self._settings, *self._modules) if isinstance(one, cls)]
            values = [value for one in own for value in _plain_values(one, part.attr)]
            values = values if len(values) == len(own) else []
        answers = {test(value) for value in values}
        return answers.pop() if len(answers) == 1 else None


_PRESENT = object()


def _plain_values(one: Any, name: str) -> Iterator[Any]:
    """The attribute of an object as it was made, a part of a module being only present; nothing if it is computed."""
    if isinstance(one, Section):
        yield from [getattr(one, name)] if name in type(one).model_fields else []
    elif name in vars(one):
        yield from [vars(one)[name]] if isinstance(vars(one)[name], bool | str | int | float | tuple | None) else []
    else:
        parts = {**one._parameters, **one._buffers, **one._modules}
        yield from [None if parts[name] is None else _PRESENT] if name in parts else []


def _of_torch(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in ("torch", "builtins")


@cache
def _assigned_later(module: str) -> frozenset[str]:
    """The attributes that methods of a module's classes set, but for `__init__`."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    methods = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name != "__init__")
    nodes = (node for method in methods for node in ast.walk(method))
    return frozenset(node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
