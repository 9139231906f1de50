"""The text of a module, and what is taken out of it before anything is resolved.

These are branches that are not taken (`Known`), such as hand-written gradients in the place of torch's operations, and
what pydantic does with the fields of settings.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

from torch import nn

from mini_tf.recipe.kinds import Section

LEFT_OUT = {"graph_operator"}
"""Decorators without effect there."""
_LEAVES = ast.Name | ast.Constant | ast.alias | ast.expr_context | ast.operator | ast.unaryop | ast.cmpop
"""Most nodes of a tree, with no condition within."""

_PRESENT = object()


class Known:
    """What is always the same in the code of one model: conditions on its settings and on what its modules are made of.

    flags: values of names and functions; objects: the modules of the model, and its settings.
    """

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
            values = [
                getattr(section, part.attr) for section in self._settings if part.attr in type(section).model_fields
            ]
        elif part.value.id == "self" and cls is not None:
            owners = [owner for owner in (*self._settings, *self._modules) if isinstance(owner, cls)]
            values = [value for owner in owners for value in _plain_values(owner, part.attr)]
            values = values if len(values) == len(owners) else []
        answers = {test(value) for value in values}
        return answers.pop() if len(answers) == 1 else None


def _plain_values(owner: Any, name: str) -> Iterator[Any]:
    """The attribute of an object as it was made, a part of a module being only present; nothing if it is computed."""
    if isinstance(owner, Section):
        yield from [getattr(owner, name)] if name in type(owner).model_fields else []
    elif name in vars(owner):
        yield from [vars(owner)[name]] if isinstance(vars(owner)[name], bool | str | int | float | tuple | None) else []
    else:
        parts = {**owner._parameters, **owner._buffers, **owner._modules}
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


class Edit(NamedTuple):
    """The characters from `start` to `end` become `text`."""

    start: int
    end: int
    text: str = ""


def edited(text: str, edits: Sequence[Edit], first: int = 0, last: int | None = None) -> str:
    """The characters from `first` to `last` after the edits; an edit within another one has no effect."""
    parts, at, last = [], first, len(text) if last is None else last
    for start, end, replacement in sorted(set(edits), key=lambda edit: (edit.start, -edit.end)):
        if start >= at and end <= last:
            parts += [text[at:start], replacement]
            at = end
    return "".join([*parts, text[at:last]])


class SourceText:
    """A text, its tree, and where each node of it stands."""

    def __init__(self, text: str) -> None:
        self.text, self.tree = text, ast.parse(text)
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    @cached_property
    def conditional(self) -> set[ast.AST]:
        """The nodes with a condition, or a decorator that is left out, in them."""
        nodes = set[ast.AST]()

        def has_condition(node: ast.AST) -> bool:
            parts = [has_condition(part) for part in ast.iter_child_nodes(node) if not isinstance(part, _LEAVES)]
            if any(parts) or isinstance(node, ast.If | ast.IfExp) or _left_out(node):
                nodes.add(node)
            return node in nodes

        has_condition(self.tree)
        return nodes

    def _offset(self, line: int, column: int) -> int:
        """The character at a place of the tree, whose columns count bytes."""
        text = self._lines[line - 1]
        return self._starts[line - 1] + (column if text.isascii() else len(text.encode()[:column].decode()))

    def span(self, node: Any) -> tuple[int, int]:
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def line_span(self, node: Any, body: Sequence[ast.stmt]) -> tuple[int, int]:
        """The characters of the lines of a statement of `body`, with comments before it and a docstring after it."""
        first = min(part.lineno for part in [node, *getattr(node, "decorator_list", [])])
        while first > 1 and self._lines[first - 2].lstrip().startswith("#"):
            first -= 1
        after: Any = [*body[body.index(node) + 1 :], node][0]
        documented = isinstance(node, ast.Assign | ast.AnnAssign) and is_text(after)
        return self._starts[first - 1], self._starts[(after if documented else node).end_lineno]

    def line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def lines_of(self, node: Any) -> Edit:
        """The removal of the lines of a node."""
        return Edit(self._starts[node.lineno - 1], self._starts[node.end_lineno])


def is_text(statement: ast.AST) -> bool:
    """Whether a statement is a docstring."""
    return isinstance(statement, ast.Expr) and isinstance(getattr(statement.value, "value", None), str)


@lru_cache(512)  # models have most texts in common
def _read(text: str) -> SourceText:
    return SourceText(text)


def needed_text(name: str, known: Known) -> str:
    """The source of a module, which is loaded, without the branches that are not taken."""
    text = _with_plain_fields(name)
    while edits := [*_folded(_read(text), name, known)]:
        text = edited(text, edits)
    return text


def _left_out(node: ast.AST) -> list[ast.expr]:
    """The decorators of a function that are left out."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return [part for part in decorators if getattr(getattr(part, "func", part), "id", "") in LEFT_OUT]


def _folded(module: SourceText, name: str, known: Known) -> Iterator[Edit]:
    """Conditions whose value is known: one of their branches remains. Those within come at the next call."""
    todo: list[tuple[Any, type | None]] = [(module.tree, None)]
    while todo:
        node, cls = todo.pop()
        if isinstance(node, ast.ClassDef):
            cls = getattr(sys.modules.get(name), node.name, cls)
        yield from map(module.lines_of, _left_out(node))
        if isinstance(node, ast.IfExp) and (value := known.truth(node.test, cls)) is not None:
            whole, kept = module.span(node), module.span(node.body if value else node.orelse)
            yield from (Edit(whole[0], kept[0]), Edit(kept[1], whole[1]))
            continue
        done: set[ast.AST] = set()
        blocks: list[Any] = [getattr(node, field, None) for field in ("body", "orelse")]
        for block in (block for block in blocks if isinstance(block, list)):
            for statement in block:
                if isinstance(statement, ast.If) and (value := known.truth(statement.test, cls)) is not None:
                    yield from _branch(module, statement, block, value)
                    done.update(block)
                    break
        todo += [(part, cls) for part in ast.iter_child_nodes(node) if part in module.conditional and part not in done]


def _branch(module: SourceText, statement: ast.If, block: list[ast.stmt], value: bool) -> Iterator[Edit]:
    """One branch in the place of a statement, and nothing after it if it returns."""
    start, end = module.span(statement)
    first, last = module.line_span(statement, block)
    body_end = module.line_span(statement.body[-1], statement.body)[1]
    branch = statement.body if value else statement.orelse
    if module.text.startswith("elif", start):
        if value:
            test_end = module.span(statement.test)[1]
            yield from (Edit(start, test_end, "else"), Edit(body_end, last))
        else:
            yield Edit(module.line_start(start), body_end)
        return
    if not branch:
        yield Edit(first, last, "" if len(block) > 1 else " " * (start - module.line_start(start)) + "pass\n")
        return
    begin = module.span(branch[0])[0]
    if not value and module.text.startswith("elif", begin):
        yield from (Edit(first, module.line_start(begin)), Edit(begin, begin + 2))
        return
    kept = module.line_span(branch[0], branch)[0], module.line_span(branch[-1], branch)[1]
    end = module.line_span(block[-1], block)[1] if isinstance(branch[-1], ast.Return | ast.Raise) else last
    yield from (Edit(first, kept[0]), Edit(kept[1], end))
    for at in range(kept[0], kept[1]):
        if module.text[at - 1] == "\n" and module.text.startswith("    ", at):
            yield Edit(at, at + 4)


@cache
def _with_plain_fields(module: str) -> str:
    """The source of a module, with fields of settings as a class without pydantic has them."""
    source = SourceText(inspect.getsource(sys.modules[module]))
    return edited(source.text, [*_plain_fields(source)])


def _plain_fields(module: SourceText) -> Iterator[Edit]:
    """Fields of settings: `name: type = Field(default, ...)` without the limits, and types without conditions."""
    fields = [node for cls in ast.walk(module.tree) if isinstance(cls, ast.ClassDef) for node in cls.body]
    for field in (node for node in fields if isinstance(node, ast.AnnAssign)):
        for part in ast.walk(field.annotation):
            if isinstance(part, ast.Subscript) and getattr(part.value, "id", "") == "Annotated":
                inner = part.slice.elts[0] if isinstance(part.slice, ast.Tuple) else part.slice
                yield from (
                    Edit(module.span(part)[0], module.span(inner)[0]),
                    Edit(module.span(inner)[1], module.span(part)[1]),
                )
        if isinstance(field.value, ast.Call) and getattr(field.value.func, "id", "") == "Field":
            defaults = [*field.value.args, *(word.value for word in field.value.keywords if word.arg == "default")]
            start, end = module.span(field.value)
            if defaults and getattr(defaults[0], "value", None) is not ...:
                kept = module.span(defaults[0])
                yield from (Edit(start, kept[0]), Edit(kept[1], end))
            else:
                yield Edit(module.span(field.annotation)[1], end)
