"""Which tests reach a line, and in which order to try them.

Every test file is run once, in a process of its own, under coverage. What was seen is kept until the test file changes;
where the code has changed since, its lines are found again by their text. Lines that a fixture reaches count for each
test that uses it.
"""

import ast
import difflib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from .forked import Fork, Tree, in_turn

NOT_FOR_THIS = ("test_architecture.py", "test_architecture_kinds.py", "test_mutants.py", "test_without_papers.py")
"""These read the source, and would find a fault by how it is written, not by what it does."""
SLOWEST = 1800.0
"""Seconds after which a test file is given up."""
RECORD = "tests/recipe/test_key_bounds.py"
"""Compares the default and the bounds of every key with the record: tried first where a field has a value."""


class Reach:
    def __init__(self, root: Path, folder: Path, sources: list[str]) -> None:
        self.root, self.folder, self.sources = root, folder, sources
        self.files = [file for file in sorted((root / "tests").rglob("test_*.py")) if file.name not in NOT_FOR_THIS]
        (folder / "reach").mkdir(parents=True, exist_ok=True)
        (folder / "texts").mkdir(exist_ok=True)

    def left(self) -> list[Path]:
        """Test files that are new or have changed."""
        return [file for file in self.files if self._kept(file).get("digest") != digest(file.read_bytes())]

    def record(self, trees: list[Tree], only: list[str]) -> Iterator[tuple[str, int]]:
        """Run what is left (or only these of it); yields each file, with how many tests of it did not pass."""
        from .inside import record

        texts = {name: (self.root / name).read_bytes() for name in self.sources}
        for text in texts.values():
            (self.folder / "texts" / digest(text)).write_bytes(text)
        versions = {name: digest(text) for name, text in texts.items()}

        def jobs() -> Iterator[tuple[Path, Any]]:
            for file in self.left():
                if not only or file.name in only:
                    name = file.relative_to(self.root).as_posix()
                    yield (
                        file,
                        lambda tree, name=name: tree.start(lambda: record(name, self.sources, tree.diary), SLOWEST),
                    )

        digests = {file: digest(file.read_bytes()) for file in self.files}
        for file, fork in in_turn(trees, jobs()):
            found = _compact(fork)
            found |= {"digest": digests[file], "versions": versions}
            target = self._place(file)
            target.with_suffix(".new").write_text(json.dumps(found))
            target.with_suffix(".new").replace(target)
            yield (
                file.name,
                sum(test["outcome"] != "passed" for test in found["tests"].values()) if found["tests"] else -1,
            )

    def load(self) -> "Tests":
        return Tests(
            self, {file.relative_to(self.root).as_posix(): kept for file in self.files if (kept := self._kept(file))}
        )

    def _place(self, file: Path) -> Path:
        return self.folder / "reach" / f"{file.stem}.json"

    def _kept(self, file: Path) -> dict[str, Any]:
        place = self._place(file)
        return json.loads(place.read_text()) if place.is_file() else {}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _compact(fork: Fork) -> dict[str, Any]:
    found = fork.result or {"tests": {}, "fixtures": {}, "lines": {}}
    return {name: found[name] for name in ("tests", "fixtures", "lines")}


class Tests:
    """All tests whose reach is known."""

    def __init__(self, reach: Reach, kept: dict[str, dict[str, Any]]) -> None:
        self.reach, self.kept = reach, kept
        self.notes = reach.folder / "controls.jsonl"
        notes = map(json.loads, self.notes.read_text().splitlines()) if self.notes.is_file() else ()
        fit = {test: fit for test, version, fit in notes if kept.get(_file(test), {}).get("digest") == version}
        self.controlled = {test for test, is_fit in fit.items() if is_fit}
        """Tests that are known to pass without a fault, run as mutants are."""
        failed = {name for file in kept.values() for name, test in file["tests"].items() if test["outcome"] == "failed"}
        self.unfit = failed | (fit.keys() - self.controlled)
        """Tests that fail without a fault, so are not used."""

    @cache  # noqa: B019
    def _by_line(self, name: str) -> tuple[dict[int, set[str]], dict[int, set[str]]]:
        """For each line of a file of the code as it is now: tests that run it, and tests whose file runs it when
        imported.
        """
        running: dict[int, set[str]] = {}
        importing: dict[int, set[str]] = {}
        now = (self.reach.root / name).read_text()
        for file in self.kept.values():
            moved = self._moved(file["versions"].get(name), now)
            passed = {
                test: t for test, t in file["tests"].items() if t["outcome"] == "passed" and test not in self.unfit
            }
            for test, about in passed.items():
                for context in (test, *about["fixtures"]):
                    for line in file["lines"].get(context, {}).get(name, ()):
                        running.setdefault(moved.get(line, 0), set()).add(test)
            for line in file["lines"].get("", {}).get(name, ()):
                importing.setdefault(moved.get(line, 0), set()).update(passed)
        return running, importing

    @cache  # noqa: B019
    def _moved(self, version: str | None, now: str) -> dict[int, int]:
        """Where each line of an earlier version of a file is now; a changed line is where its neighbour above is."""
        text = self.reach.folder / "texts" / (version or "")
        before = text.read_text().splitlines() if text.is_file() else []
        moved: dict[int, int] = {}
        for tag, i, j, k, end in difflib.SequenceMatcher(None, before, now.splitlines(), autojunk=False).get_opcodes():
            moved |= {
                old + 1: k + old - i + 1 if tag == "equal" else max(1, min(k + old - i + 1, end)) for old in range(i, j)
            }
        return moved

    def for_line(self, name: str, line: int) -> dict[str, float]:
        """Tests that may see a fault in a line, with the seconds each takes, the most promising first."""
        source = (self.reach.root / name).read_text()
        statement, inside = _statement(source, line)
        running, importing = self._by_line(name)
        found = set().union(*(running.get(i, ()) for i in statement))
        if not inside:  # what it makes is used elsewhere in the class or the file
            found |= set().union(*(running.get(i, ()) for i in _around(source, line)))
            # A declaration may be read without a line of its file being run: by the contract of its package.
            found |= {test for i in statement for test in importing.get(i, ()) if _kinship(name, test) > 1}
        if not found:
            found = set().union(*(importing.get(i, ()) for i in statement))
        record = self.kept.get(RECORD, {"tests": {}})["tests"] if _is_field(source, line) else ()
        return {test: self.seconds(test) for test in record if test in self} | self._ordered(name, found)

    def _ordered(self, name: str, found: set[str]) -> dict[str, float]:
        costs = {}
        repeats: Counter[str] = Counter()
        for test in sorted(found, key=lambda test: (self.seconds(test), test)):
            function = test.split("[")[0]
            costs[test] = (self.seconds(test) + 0.02) * (1 + repeats[function]) / _kinship(name, test)
            repeats[function] += 1
        return {test: self.seconds(test) for test in sorted(costs, key=costs.__getitem__)}

    def costs(self, test: str) -> tuple[float, dict[str, float]]:
        """The seconds a test takes by itself, and those of each fixture that it shares with others of its file."""
        file = self.kept[_file(test)]
        about = file["tests"][test]
        return float(about["seconds"]), {
            f"{_file(test)} {fixture}": file["fixtures"].get(fixture, 0.0) for fixture in about["fixtures"]
        }

    def seconds(self, test: str) -> float:
        own, shared = self.costs(test)
        return own + sum(shared.values())

    def note(self, tests: list[str], fit: bool) -> None:
        """Remember how a test did without a fault; counts when they are loaded again."""
        with self.notes.open("a") as notes:
            for test in tests:
                notes.write(json.dumps([test, self.version(test), fit]) + "\n")

    def version(self, test: str) -> str:
        """Of the file of a test."""
        return str(self.kept.get(_file(test), {}).get("digest", ""))

    def __contains__(self, test: str) -> bool:
        return test in self.kept.get(_file(test), {"tests": {}})["tests"] and test not in self.unfit


def _file(test: str) -> str:
    return test.split("::")[0]


_parsed = cache(ast.parse)


def _kinship(name: str, test: str) -> int:
    """How much more a test is worth whose file is named after the code's."""
    words = re.findall(r"[a-z0-9]+", name.removeprefix("mini_tf/").removesuffix(".py"))
    theirs = _file(test).rpartition("/")[2].removeprefix("test_").removesuffix(".py")
    named_after = theirs.startswith(("_".join(words), f"{words[0]}_{words[-1]}"))  # sub-packages are mostly left out
    return 8 if named_after else 3 if theirs.startswith(words[0]) else 1


def _statement(source: str, line: int) -> tuple[range, bool]:
    """The lines of the statement (or of its head) a line is in, and whether it runs later than the import of its
    file.
    """
    best, inside = range(line, line + 1), False
    smallest = 10**9
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.stmt | ast.match_case | ast.ExceptHandler):
            first = min([d.lineno for d in getattr(node, "decorator_list", [])] + [getattr(node, "lineno", 10**9)])
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else getattr(node, "end_lineno", 0)
            if isinstance(node, ast.match_case):
                first, last = node.pattern.lineno, max(last, node.pattern.lineno)
            last = max(first, last)
            if first <= line <= last and last - first < smallest:
                best, smallest = range(first, last + 1), last - first
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.body[0].lineno <= line <= (
            node.end_lineno or 0
        ):
            inside = True
    return best, inside


def _is_field(source: str, line: int) -> bool:
    """Whether a line gives a field of a class its value."""
    return any(
        isinstance(field, ast.AnnAssign) and field.value and field.lineno <= line <= (field.end_lineno or 0)
        for node in ast.walk(_parsed(source))
        if isinstance(node, ast.ClassDef)
        for field in node.body
    )


def _around(source: str, line: int) -> range:
    """The lines of the class a line is in, or of its function where it is in the head of one, else of the whole
    file.
    """
    best = range(1, len(source.splitlines()) + 1)
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([d.lineno for d in node.decorator_list] + [node.lineno])
            if first <= line <= (node.end_lineno or 0) and (node.end_lineno or 0) - first < len(best):
                best = range(first, (node.end_lineno or 0) + 1)
    return best
