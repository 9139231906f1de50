"""Finds, by reading the source, where code outside a package of kinds asks which kind it has.

A package of kinds is a folder whose files have a class `Settings`; the files' names are its words. Many of them are
ordinary words ("linear", "none", "window"), so a string alone is no finding: counted are comparisons, match cases and
tables whose other side is a declaration (`.kind`, `.DATASET`, `.PIPELINE`, `getattr` of these, or a name that was bound
to one, or is `kind`), collections of words of one package, `isinstance` and `type(x) is` on a class of a kind, and
`getattr` by a name that only kinds declare. Not counted is `.applies_to`, whose "rotary" is a place to attach, and what
reaches its test as an argument.
"""

import ast
import gc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

DECLARED = {"DATASET": "datasets", "PIPELINE": "pipelines"}
"""What kinds declare of themselves, and whose declaration it is; to compare it with a literal is to ask which kind it
is.
"""
NAMED_LISTS = {"BASELINES"}
"""Declarations that name several kinds, which asks nothing."""
CONTRACTS = {
    "Mixer": "attention",
    "PositionalEncoding": "positions",
    "Model": "models",
    "Objective": "objectives",
    "Pipeline": "pipelines",
}
"""The classes that every kind of a package is; classes between them and a kind (`MultiHeadAttention`, `OneStack`)
belong to some kinds.
"""
_GATHERED = (ast.Tuple, ast.List, ast.Set)


class Question(NamedTuple):
    """A place that asks: the package of kinds, the line, and its code."""

    package: str
    line: int
    code: str


@dataclass
class Kinds:
    """What there is to ask for: words, classes and names of settings, each with its package."""

    words: dict[str, set[str]] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    def packages_of(self, literals: Iterable[str]) -> list[str]:
        """The packages that have one of these words."""
        found = set(literals)
        return sorted(package for package, words in self.words.items() if words & found)


@cache
def parsed(file: Path) -> ast.Module:
    gc.disable()  # a tree stays, and a collection would look at all of them, now and later
    try:
        return ast.parse(file.read_text())
    finally:
        gc.freeze()
        gc.enable()


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    """All nodes of a file: several tests look at them, and a walk takes longer than they do."""
    return list(ast.walk(parsed(file)))


@cache
def packages(root: Path) -> list[Path]:
    """The folders of kinds: those with a file that has a `Settings`."""
    return sorted(
        {file.parent for file in root.rglob("*.py") if not file.stem.startswith("_") and "Settings" in _classes(file)}
    )


@cache
def kinds_of(root: Path) -> Kinds:
    found, folders = Kinds(), packages(root)
    shared: set[str] = set()
    for file in sorted(root.rglob("*.py")):
        inside = file.parent in folders
        for name, made in _classes(file).items():
            if name.endswith("Settings") and (not inside or file.stem.startswith("_")):
                shared |= _names(made)
            elif inside and name == "Settings":
                found.words.setdefault(file.parent.name, set()).add(file.stem)
                found.settings |= dict.fromkeys(_names(made), file.parent.name)
            elif inside and not name.startswith("_") and not file.stem.startswith("_"):
                found.classes[name] = file.parent.name
            elif package := next((CONTRACTS[base] for base in _bases(made) if base in CONTRACTS), None):
                found.classes[name] = package
    found.classes = {name: package for name, package in found.classes.items() if name not in CONTRACTS}
    found.settings = {name: package for name, package in found.settings.items() if name not in shared}
    return found


def questions(tree: ast.Module, kinds: Kinds) -> list[Question]:
    """Every question of a file, in the order of its lines."""
    constants = {name: _literals(value, {}) for name, value in _bound(tree.body)}
    found = {
        Question(package, node.lineno, ast.unparse(node)[:100]) for package, node in _asked(tree, kinds, constants)
    }
    return sorted(found, key=lambda question: (question.line, question.package))


def _asked(
    tree: ast.Module, kinds: Kinds, constants: Mapping[str, set[str]]
) -> Iterator[tuple[str, ast.expr | ast.pattern]]:
    bodies = [made.body for made in ast.walk(tree) if isinstance(made, ast.ClassDef)]
    declared_lists = [value for body in bodies for name, value in _bound(body) if name in NAMED_LISTS]
    functions = [node for body in bodies for node in body if isinstance(node, ast.FunctionDef)]
    declared_lists += [node for one in functions if one.name in NAMED_LISTS for node in ast.walk(one)]  # by settings
    for scope, env in _scopes(tree):
        for node in scope:
            if node in declared_lists:
                continue
            match node:
                case ast.Compare():
                    for package in _of_compare(node, kinds, constants, env):
                        yield package, node
                case ast.Match():
                    asks = _asks(node.subject, env)
                    for case in node.cases:
                        literals = {str(one.value) for one in ast.walk(case.pattern) if isinstance(one, ast.Constant)}
                        for package in _packages(asks, literals, kinds):
                            yield package, case.pattern
                        for one in ast.walk(case.pattern):
                            if isinstance(one, ast.MatchClass) and (name := _name(one.cls)) in kinds.classes:
                                yield kinds.classes[name], case.pattern
                case ast.Subscript():
                    for declared in _asks(node.slice, env) & DECLARED.keys():
                        yield DECLARED[declared], node
                case ast.Call():
                    for package in _of_call(node, kinds, env):
                        yield package, node
                case ast.Tuple() | ast.List() | ast.Set() | ast.Dict():
                    groups = [group for group in _groups(node) if len(group) > 1]
                    for package, words in kinds.words.items() if groups else ():
                        if any(group <= words for group in groups):
                            yield package, node


def _of_compare(
    node: ast.Compare, kinds: Kinds, constants: Mapping[str, set[str]], env: Mapping[str, set[str]]
) -> Iterator[str]:
    sides = [node.left, *node.comparators]
    for one, other in [pair for both in pairwise(sides) for pair in (both, both[::-1])]:
        asks, literals = _asks(one, env), _literals(other, constants)
        yield from _packages(asks, literals, kinds)
        if isinstance(one, ast.Call) and _name(one.func) == "type" and (name := _name(other)) in kinds.classes:
            yield kinds.classes[name]


def _of_call(node: ast.Call, kinds: Kinds, env: Mapping[str, set[str]]) -> Iterator[str]:
    name, args = _name(node.func), node.args
    if name in ("isinstance", "issubclass") and len(args) == 2:
        named = {
            _name(one)
            for one in ast.walk(args[1])
            if isinstance(one, ast.Name | ast.Attribute) and not ast.unparse(one).startswith(("nn.", "torch."))
        }
        yield from {kinds.classes[one] for one in named if one in kinds.classes}
    elif (
        name in ("getattr", "hasattr")
        and len(args) > 1
        and isinstance(args[1], ast.Constant)
        and args[1].value in kinds.settings
    ):
        yield kinds.settings[str(args[1].value)]
    elif isinstance(node.func, ast.Attribute) and node.func.attr == "get" and args:
        yield from (DECLARED[one] for one in _asks(args[0], env) & DECLARED.keys())


def _packages(asks: set[str], literals: set[str], kinds: Kinds) -> list[str]:
    """Whose kind is asked for, where declarations meet literals."""
    if not literals:
        return []
    return [
        *{DECLARED[one] for one in asks & DECLARED.keys()},
        *(kinds.packages_of(literals) if "kind" in asks else ()),
    ]


def _asks(node: ast.expr, env: Mapping[str, set[str]]) -> set[str]:
    """The declarations that an expression holds."""
    match node:
        case ast.Attribute():
            return {node.attr} & {*DECLARED, "kind"}
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
            return {name} & {*DECLARED, "kind"}
        case ast.Call(func=ast.Name(id="set" | "tuple" | "list" | "sorted" | "frozenset" | "str")):
            parts: list[ast.expr] = node.args
        case ast.Name():
            return env.get(node.id, set()) | ({"kind"} & {node.id})
        case ast.Tuple() | ast.List() | ast.Set():
            parts = node.elts
        case ast.SetComp() | ast.ListComp() | ast.GeneratorExp():
            parts = [node.elt]
        case ast.BoolOp():
            parts = node.values
        case ast.IfExp():
            parts = [node.body, node.orelse]
        case ast.Subscript() | ast.NamedExpr() | ast.Starred():
            parts = [node.value]
        case _:
            parts = []
    return {one for part in parts for one in _asks(part, env)}


def _scopes(tree: ast.Module) -> Iterator[tuple[list[ast.AST], dict[str, set[str]]]]:
    """The nodes of every function, and of what stands in none, with the names that hold declarations there."""
    outside, outermost, todo = list[ast.AST](), list[ast.AST](), list[ast.AST]([tree])
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            outermost.append(node)
        else:
            outside.append(node)
            todo += ast.iter_child_nodes(node)
    for scope in outermost:
        nodes, env = list(ast.walk(scope)), dict[str, set[str]]()
        for name, value in _bound(nodes):
            env[name] = env.get(name, set()) | _asks(value, env)
        yield nodes, env
    yield outside, {}


def _bound(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Names and what they are bound to; `a, b = c, d` part by part."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.For | ast.comprehension):
            pairs = [(node.target, node.iter)]
        else:
            continue
        for target, value in pairs:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                yield from ((_name(one), other) for one, other in zip(target.elts, value.elts, strict=True))
            else:
                yield _name(target), value


def _literals(node: ast.expr, constants: Mapping[str, set[str]]) -> set[str]:
    """The strings of a literal, of a collection of them, or of a constant of the file."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    if isinstance(node, ast.Name):
        return constants.get(node.id, set())
    if isinstance(node, ast.Dict):
        return {one for key in node.keys if key is not None for one in _literals(key, constants)}
    if isinstance(node, _GATHERED):
        return {one for part in node.elts for one in _literals(part, constants)}
    if isinstance(node, ast.Call) and _name(node.func) in ("frozenset", "set", "tuple"):
        return {one for part in node.args for one in _literals(part, constants)}
    return set()


def _groups(node: ast.expr) -> list[set[str]]:
    """The strings that stand together in a collection; of a mapping its keys, and its values. Not where other things
    stand too.
    """
    parts: list[list[ast.expr | None]] = []
    if isinstance(node, ast.Dict):
        parts = [node.keys, [*node.values]]
    elif isinstance(node, _GATHERED):
        parts = [[*node.elts]]
    plain = [part for part in parts if all(isinstance(one, ast.Constant) for one in part)]
    return [{str(one.value) for one in part if isinstance(one, ast.Constant)} for part in plain]


def _classes(file: Path) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in parsed(file).body if isinstance(node, ast.ClassDef)}


def _bases(made: ast.ClassDef) -> list[str]:
    return [_name(base) for base in made.bases]


def _names(made: ast.ClassDef) -> set[str]:
    """What a class declares: annotated names and constants."""
    return {name for name, _ in _bound(made.body)} | {
        _name(one.target) for one in made.body if isinstance(one, ast.AnnAssign)
    }


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
