"""The text of a module, and what is taken out of it before anything is resolved.

These are branches that are not taken (`known.py`), such as hand-written gradients in the place of torch's operations,
and what pydantic does with the fields of settings.
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mini_tf.hf.formats._code.known import Known

LEFT_OUT = {"graph_operator"}
"""Decorators without effect there."""
_LEAVES = ast.Name | ast.Constant | ast.alias | ast.expr_context | ast.operator | ast.unaryop | ast.cmpop
"""Most nodes of a tree, with no condition within."""


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

    def __init__(self, name: str, text: str, known: Known) -> None:
        """name: of the module, which is loaded; known: conditions in it."""
        self.name, self.known = name, known
        self._read(text)
        while edits := [*_folded(self)]:
            self._read(edited(self.text, edits))
        self._read(edited(self.text, [*_plain_fields(self)]))

    def _read(self, text: str) -> None:
        self.text, self.tree = text, ast.parse(text)
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def _offset(self, line: int, column: int) -> int:
        """The character at a place of the tree, whose columns count bytes."""
        text = self._lines[line - 1]
        return self._starts[line - 1] + (column if text.isascii() else len(text.encode()[:column].decode()))

    def span(self, node: Any) -> tuple[int, int]:
        """The characters of a node."""
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
        """The first character of the line of a character."""
        return self.text.rfind("\n", 0, at) + 1

    def lines_of(self, node: Any) -> Edit:
        """The removal of the lines of a node."""
        return Edit(self._starts[node.lineno - 1], self._starts[node.end_lineno])


def is_text(statement: ast.AST) -> bool:
    """Whether a statement is a docstring."""
    return isinstance(statement, ast.Expr) and isinstance(getattr(statement.value, "value", None), str)


def _folded(module: SourceText) -> Iterator[Edit]:
    """Conditions whose value is known: one of their branches remains. Those within come at the next call."""
    todo: list[tuple[Any, type | None]] = [(module.tree, None)]
    while todo:
        node, cls = todo.pop()
        if isinstance(node, ast.ClassDef):
            cls = getattr(sys.modules.get(module.name), node.name, cls)
        for decorator in getattr(node, "decorator_list", []):
            if getattr(getattr(decorator, "func", decorator), "id", "") in LEFT_OUT:
                yield module.lines_of(decorator)
        if isinstance(node, ast.IfExp) and (value := module.known.truth(node.test, cls)) is not None:
            whole, kept = module.span(node), module.span(node.body if value else node.orelse)
            yield from (Edit(whole[0], kept[0]), Edit(kept[1], whole[1]))
            continue
        done: set[ast.AST] = set()
        blocks: list[Any] = [getattr(node, name, None) for name in ("body", "orelse")]
        for block in (block for block in blocks if isinstance(block, list)):
            for statement in block:
                if isinstance(statement, ast.If) and (value := module.known.truth(statement.test, cls)) is not None:
                    yield from _branch(module, statement, block, value)
                    done.update(block)
                    break
        parts = (part for part in ast.iter_child_nodes(node) if not isinstance(part, _LEAVES))
        todo += [(part, cls) for part in parts if part not in done]


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
            given = [*field.value.args, *(word.value for word in field.value.keywords if word.arg == "default")]
            start, end = module.span(field.value)
            if given and getattr(given[0], "value", None) is not ...:
                kept = module.span(given[0])
                yield from (Edit(start, kept[0]), Edit(kept[1], end))
            else:
                yield Edit(module.span(field.annotation)[1], end)
