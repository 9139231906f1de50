"""The mutants: faults that cosmic-ray's operators make, of which a fixed sample is drawn.

Every place that an operator can change (a number, a comparison, a condition) is as likely as any other, and one of its
faults is drawn, so that the eleven replacements of each `+` do not crowd out everything else; further faults of a place
come only where a package has fewer positions than its sample. What is drawn hangs on a hash of the file and of the
line's text, so that the sample stays as it is where lines move, and changes only with the lines that change.

Left out are faults that no test could or should see: see `LEFT_OUT`, annotations and overloads with their defaults
(which the type checker reads; a call never reaches them), and what compiles to the same bytecode or not at all.
"""

import ast
import difflib
import hashlib
import json
import re
import types
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PACKAGES = sorted(file.parent.name for file in (Path(__file__).parents[2] / "mini_tf").glob("*/__init__.py"))
SIZES = dict.fromkeys(PACKAGES, 60) | {
    "nn": 150, "attention": 100, "positions": 100, "objectives": 100, "data": 150, "inspection": 100,
    "papers": 150, "training": 150, "optimizers": 100, "schedules": 100, "generation": 100, "run": 150,
    "pipelines": 100,
}  # fmt: skip
"""How many mutants of each package are drawn, if it has as many."""

LEFT_OUT = {
    r"Variable(Replacer|Inserter)": "draws random numbers, so is another mutant every time",
    r"ReplaceComparisonOperator_(Is_Eq|Eq_Is|IsNot_NotEq|NotEq_IsNot)": (
        "whether equal constants are identical is up to Python"
    ),
}
"""Operators by name, with the reason."""
DECORATORS = {
    r"@(typing\.)?(overload|final|override)": "read by the type checker alone",
    r"@(abc\.)?abstractmethod": "read by the type checker; no test makes what is not whole",
    r"@(functools\.)?(lru_)?cache\b": "only saves time",
}
"""Decorators that are not removed, with the reason."""
LINES = {r"@dataclass\(frozen=True\)": "that fields are not set is read by the type checker"}
"""Lines that are not changed, with the reason."""


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    before: str
    after: str
    """The lines it changes, without the indentation."""
    nth: int
    """Which of the changes of this text in the file, from 0."""
    source: str
    """The whole file with the fault in it."""

    @property
    def package(self) -> str:
        return self.file.split("/")[1]

    @property
    def key(self) -> str:
        return _digest(self.file, self.before, self.after, str(self.nth))[:12]


def files_of(root: Path, package: str) -> list[str]:
    path = root / "mini_tf" / package
    return [file.relative_to(root).as_posix() for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]


def sample(root: Path, package: str, kept: Path) -> list[Mutant]:
    """The sample of one package (or file) of mini_tf, which is kept in a folder until the package changes."""
    sources = {name: (root / name).read_text() for name in files_of(root, package)}
    file = kept / f"{_digest(Path(__file__).read_text(), *sources.values())[:16]}.json"
    if not file.is_file():
        kept.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([asdict(mutant) for mutant in _drawn(sources, SIZES[package])]))
    return [Mutant(**mutant) for mutant in json.loads(file.read_text())]


def _drawn(sources: dict[str, str], size: int) -> list[Mutant]:
    drawn = [
        (rank, word, name, operator, nth)
        for name, source in sources.items()
        for rank, word, operator, nth in _ordered(name, source)
    ]
    mutants: list[Mutant] = []
    codes = {name: {_compiled(source)} for name, source in sources.items()}
    for _, _, name, operator, nth in sorted(drawn, key=lambda entry: entry[:2]):
        if len(mutants) == size:
            break
        mutant = _mutant(name, sources[name], operator, nth)
        code = _compiled(mutant.source) if mutant else None
        if mutant and code and code not in codes[name]:
            codes[name].add(code)
            mutants.append(mutant)
    return mutants


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def _ordered(name: str, source: str) -> Iterator[tuple[int, str, object, int]]:
    """Every fault an operator can make: its rank among those of its place, its hash, the operator, and which of the
    operator's it is.
    """
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.operators.provider import OperatorProvider

    provider = OperatorProvider()
    operators = [provider[word]() for word in provider if not _fits(LEFT_OUT, word)]
    lines, left_out = source.splitlines(), _left_out(source)
    seen: Counter[object] = Counter()
    repeats: Counter[str] = Counter()
    positions: dict[object, list[tuple[str, object, int]]] = {}
    for node in ast_nodes(get_ast(source)):
        for operator in operators:
            for start, end in operator.mutation_positions(node):
                nth, seen[operator] = seen[operator], seen[operator] + 1
                text = lines[start[0] - 1].strip()
                if (
                    any(low <= start < high for low, high in left_out)
                    or (node.type == "decorator" and _fits(DECORATORS, text))
                    or _fits(LINES, text)
                ):
                    continue
                words = (name, text, str(start[1] - len(lines[start[0] - 1]) + len(text)), type(operator).__name__)
                same = "\0".join(words)
                positions.setdefault((start, end), []).append((_digest(*words, str(repeats[same])), operator, nth))
                repeats[same] += 1
    for faults in positions.values():
        for rank, (digest, operator, nth) in enumerate(sorted(faults, key=lambda fault: fault[0])):
            yield rank, digest, operator, nth


def _fits(patterns: dict[str, str], text: str) -> bool:
    return any(re.match(pattern, text) for pattern in patterns)


def _left_out(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The ranges (line, column) of annotations, and of what only the type checker runs or reads."""
    lines = [line.encode() for line in source.splitlines()]
    ranges = []
    for node in ast.walk(ast.parse(source)):
        unseen: list[ast.AST | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            overloaded = any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)
            unseen = [node if overloaded else node.returns]
        elif isinstance(node, ast.arg | ast.AnnAssign):
            unseen = [node.annotation]
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            unseen = [node]
        for part in filter(None, unseen):
            ends = ((part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset))
            start, end = ((line, len(lines[line - 1][:column].decode())) for line, column in ends)
            ranges.append((start, end))
    return ranges


def _mutant(name: str, source: str, operator: object, nth: int) -> Mutant | None:
    from cosmic_ray.mutating import mutate_code

    try:
        mutated = mutate_code(source, operator, nth)
    except (
        AttributeError
    ):  # cosmic-ray cannot replace an exception with a dotted name, such as `except json.JSONDecodeError`
        return None
    if mutated is None or mutated == source:
        return None
    old, new = source.splitlines(), mutated.splitlines()
    changes = [
        change
        for change in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if change[0] != "equal"
    ]
    start, end = changes[0][1], changes[-1][2]
    before, after = ("\n".join(map(str.strip, part)) for part in (old[start:end], new[changes[0][3] : changes[-1][4]]))
    size = end - start
    same = [i for i in range(start) if "\n".join(map(str.strip, old[i : i + size])) == before]
    return Mutant(name, start + 1, before, re.sub(r"(?<=\S)  +", " ", after), len(same), mutated)


def _compiled(source: str) -> object:
    """What Python makes of a source, to compare; None if nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", SyntaxWarning)
        try:
            return _bare(compile(source, "", "exec"))
        except (SyntaxError, ValueError):
            return None


def _bare(code: types.CodeType) -> object:
    constants = tuple(
        _bare(c) if isinstance(c, types.CodeType) else (type(c).__name__, repr(c)) for c in code.co_consts
    )
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_name
