"""The docstrings below the fields of a class, from its source."""

import ast
import inspect
import textwrap
from functools import cache
from typing import TypeGuard


@cache
def field_docstrings(section: type) -> dict[str, str]:
    """Those of the fields that a class itself declares, by name; "" for a field that has none."""
    [node] = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(node, ast.ClassDef)
    return docstrings_in(node)


def docstrings_in(node: ast.ClassDef) -> dict[str, str]:
    """`field_docstrings` of a class that is not imported."""
    texts = {}
    for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            texts[statement.target.id] = ast.literal_eval(after.value) if _is_text(after) else ""
    return {name: inspect.cleandoc(text) for name, text in texts.items()}


def _is_text(statement: ast.stmt | None) -> TypeGuard[ast.Expr]:
    return isinstance(statement, ast.Expr) and isinstance(getattr(statement.value, "value", None), str)
