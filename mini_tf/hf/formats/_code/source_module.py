"""The source of a module: its definitions, and what each part of them refers to."""

import ast
import sys
from collections.abc import Sequence, Set
from functools import lru_cache
from typing import Any, NamedTuple

from mini_tf.hf.formats._code.source_text import Edit, Known, SourceText, needed_text
from mini_tf.recipe.kinds import settings_of

SETTINGS_BY_WORD = ("default_kind", "settings_of")
"""Functions that give the settings of a kind, in whose place the file has their class."""
SHAPED = "jaxtyping"
Key = tuple[str, str | None]
"""A module and a name in it; None: the module itself."""


class Reference(NamedTuple):
    """Where a part names something outside of it, and under which name."""

    key: Key
    local: str
    start: int
    end: int


class Annotation(NamedTuple):
    """References of a type annotation, and the edit that leaves it out."""

    references: list[Reference]
    without: Edit


class Uses(NamedTuple):
    """What a part of the source uses: references, annotations, and names of attributes that it reads."""

    references: list[Reference]
    annotations: list[Annotation]
    attributes: set[str]


class SourceModule(SourceText):
    """definitions: the statement at the top of the file that binds a name; imports: what other names stand for.

    when_loaded: imports that are no conditional ones, as those for type checkers are.
    """

    def __init__(self, name: str, text: str, packages: Set[str]) -> None:
        """packages: those whose modules are sources, too."""
        super().__init__(text)
        self.name, self.packages, self.package = name, packages, sys.modules[name].__package__ or ""
        self._uses: dict[ast.AST, Uses] = {}
        self.definitions: dict[str, ast.stmt] = {}
        self.imports: dict[str, Key] = {}
        self.when_loaded: list[Key] = []
        for statement in self.tree.body:
            for node in ast.walk(statement) if isinstance(statement, ast.If) else [statement]:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    self.imports |= (imported := self._imported(node))
                    self.when_loaded += [] if isinstance(statement, ast.If) else imported.values()
            names = _bound([statement])
            for part in statement.body if isinstance(statement, ast.Try) else []:  # what may be missing
                names |= {alias.asname or alias.name for alias in getattr(part, "names", [])}
            self.definitions |= dict.fromkeys(names, statement)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> dict[str, Key]:
        if isinstance(node, ast.Import):
            tops = [alias.name.partition(".")[0] for alias in node.names]
            return {
                alias.asname or top: (alias.name if alias.asname else top, None)
                for alias, top in zip(node.names, tops, strict=True)
            }
        base = node.module or ""
        if node.level:
            above = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
            base = ".".join([*above, *filter(None, [base])])
        return {alias.asname or alias.name: (base, alias.name) for alias in node.names}

    def is_own(self, module: str) -> bool:
        return module.partition(".")[0] in self.packages

    def uses(self, part: ast.AST) -> Uses:
        """What a statement, or the header of a class, uses."""
        if part not in self._uses:
            visitor = _Visitor(self)
            visitor.visit(part)
            self._uses[part] = visitor.uses
        return self._uses[part]


def source_module(name: str, packages: frozenset[str], known: Known) -> SourceModule:
    """A module without the branches that a model does not take."""
    return _read(name, needed_text(name, known), packages)


@lru_cache(512)  # models have most modules in common
def _read(name: str, text: str, packages: frozenset[str]) -> SourceModule:
    return SourceModule(name, text, packages)


def _bound(statements: Sequence[Any]) -> set[str]:
    """The names that statements bind, without those of functions, classes and comprehensions within."""
    names, todo = set(), [*statements]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            continue
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            names |= {node.name} if isinstance(node, ast.ExceptHandler) and node.name else set()
            todo += ast.iter_child_nodes(node)
    return names


class _Visitor(ast.NodeVisitor):
    """Collects what a part uses."""

    def __init__(self, module: SourceModule) -> None:
        self.module, self.uses = module, Uses([], [], set())
        self._into, self._local = self.uses.references, [set[str]()]

    def _refer(self, node: ast.AST, key: Key, local: str) -> None:
        self._into.append(Reference(key, local, *self.module.span(node)))

    def _key(self, name: str) -> Key | None:
        """What a name stands for; None: it is local, or Python's own."""
        if any(name in names for names in self._local):
            return None
        return (self.module.name, name) if name in self.module.definitions else self.module.imports.get(name)

    def visit_Name(self, node: ast.Name) -> None:
        if key := self._key(node.id):
            self._refer(node, key, node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        key = self._key(node.value.id) if isinstance(node.value, ast.Name) else None
        of_library = key is not None and key[1] is None and not self.module.is_own(key[0])
        if isinstance(node.ctx, ast.Load) and not of_library:
            self.uses.attributes.add(node.attr)
        name = ".".join(filter(None, key or ()))
        if self.module.is_own(name) and name in sys.modules:
            self._refer(node, (name, node.attr), node.attr)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = getattr(node.func, "id", "")
        words = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        if called in SETTINGS_BY_WORD and self._key(called) and len(words) == 2:
            settings = settings_of(*map(str, words))
            self._refer(node, (settings.__module__, settings.__name__), settings.__name__)
            return
        if called in ("getattr", "hasattr") and isinstance(node.args[1], ast.Constant):
            self.uses.attributes.add(str(node.args[1].value))
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        key = self._key(getattr(node.value, "id", ""))
        if key == ("typing", "Literal") or (key and key[0] == SHAPED):  # whose texts are no types
            self.visit(node.value)
            if key[0] == SHAPED and isinstance(node.slice, ast.Tuple):
                self.visit(node.slice.elts[0])
        else:
            self.generic_visit(node)

    def _annotation(self, node: Any, without: Edit) -> None:
        before, self._into = self._into, []
        texts = [part for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        self.visit(node)
        for text in texts:
            for part in _parts_of_type(str(text.value)):
                if isinstance(part, ast.Name) and (key := self._key(part.id)):
                    self._refer(text, key, part.id)
        self.uses.annotations.append(Annotation(self._into, without))
        self._into = before

    def visit_arg(self, node: ast.arg) -> None:
        if node.annotation is not None:
            start, end = self.module.span(node)
            self._annotation(node.annotation, Edit(start + len(node.arg), end))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._annotation(node.annotation, Edit(*self.module.span(node.annotation), "Any"))
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def _function(self, node: Any) -> None:
        for part in [*getattr(node, "decorator_list", []), *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(part)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        arguments += [argument for argument in (node.args.vararg, node.args.kwarg) if argument is not None]
        for argument in arguments:
            self.visit(argument)
        if (returns := getattr(node, "returns", None)) is not None:
            start, end = self.module.span(returns)
            self._annotation(returns, Edit(self.module.text.rindex("->", 0, start) - 1, end))
        body = node.body if isinstance(node.body, list) else [node.body]
        self._within({argument.arg for argument in arguments} | _bound(body), body)

    visit_FunctionDef = visit_Lambda = _function

    def _comprehension(self, node: Any) -> None:
        names = _bound([generator.target for generator in node.generators])
        self._within(names, [*ast.iter_child_nodes(node)])

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def _within(self, names: set[str], parts: Sequence[ast.AST]) -> None:
        self._local.append(names)
        for part in parts:
            self.visit(part)
        self._local.pop()


def _parts_of_type(text: str) -> list[ast.AST]:
    """The parts of a type that is written as text; none of another text."""
    try:
        return [*ast.walk(ast.parse(text, mode="eval"))]
    except SyntaxError:
        return []
