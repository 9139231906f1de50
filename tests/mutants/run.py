"""Puts each mutant to the tests that reach it, and keeps what came of it.

A result counts as long as the file with the fault is as it was; of a mutant that survived, as long as the tests tried are as they were.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .forked import Fork, Tree, in_turn
from .reach import Tests, digest
from .sample import Mutant

FIRST = 12
"""Tests that are tried before the files of all the others are imported."""
FOUND = ("found", "timeout", "crash")


class Results:
    """One line of JSON for each mutant that was run; the last one counts."""

    def __init__(self, root: Path, folder: Path, tests: Tests, limit: float) -> None:
        self.root, self.file, self.tests, self.limit = root, folder / "results.jsonl", tests, limit
        lines = self.file.read_text().splitlines() if self.file.is_file() else []
        self.kept: dict[str, dict[str, Any]] = {result["key"]: result for line in lines if (result := _read(line))}

    def of(self, mutant: Mutant) -> dict[str, Any] | None:
        """What is known of a mutant; None where it has to be run."""
        kept = self.kept.get(mutant.key)
        if kept is None or kept["source"] != digest(mutant.source.encode()):
            return None
        if kept["outcome"] == "survived":
            return kept if kept["tried"] == self._tried(self.plan(mutant)) else None
        gone = "::" in kept["by"] and kept["by"] not in self.tests  # or turned out unfit
        return kept if kept["outcome"] in FOUND and not gone else None

    def plan(self, mutant: Mutant) -> dict[str, float]:
        """The tests to try, as many as fit into the limit; at least one."""
        chosen: dict[str, float] = {}
        for test, seconds in self.tests.for_line(mutant.file, mutant.line).items():
            if not chosen or sum(chosen.values()) + seconds <= self.limit:
                chosen[test] = seconds
        return chosen

    def _tried(self, plan: dict[str, float]) -> str:
        files = sorted({_file(test) for test in plan})
        return digest(json.dumps([sorted(plan), [self.tests.kept[file]["digest"] for file in files]]).encode())

    def run(self, trees: list[Tree], mutants: list[Mutant]) -> Iterator[tuple[Mutant, dict[str, Any]]]:
        """Run mutants; yields each with its result, which is kept before that."""

        def jobs() -> Iterator[tuple[Mutant, Any]]:
            for mutant in mutants:
                yield mutant, lambda tree, mutant=mutant: self._start(tree, mutant)

        for mutant, fork in in_turn(trees, jobs()):
            result = fork.result
            fork.tree.restore(mutant.file)
            plan = self.plan(mutant)
            known = {"key": mutant.key, "file": mutant.file, "source": digest(mutant.source.encode()), "tests": len(plan)}
            known |= {"tried": self._tried(plan), "by": "", "why": ""} | _outcome(fork, result)
            self.kept[mutant.key] = known
            with self.file.open("a") as log:
                log.write(json.dumps(known) + "\n")
            yield mutant, known

    def control(self, trees: list[Tree], mutants: list[Mutant]) -> Iterator[str]:
        """Run the tests that found a mutant as they ran then, but without a fault; yields those that fail now too, which are unfit."""
        from .inside import run

        finders = {known["by"] for mutant in mutants if (known := self.of(mutant))}
        asked = [test for test in sorted(finders) if test in self.tests and test not in self.tests.controlled]
        files = {file: {test: self.tests.seconds(test) for test in asked if _file(test) == file} for file in map(_file, asked)}

        def jobs() -> Iterator[tuple[dict[str, float], Any]]:
            while files:
                _, batch = files.popitem()
                yield batch, lambda tree, batch=batch: tree.start(lambda: run([batch]), 60 + 10 * sum(batch.values()))

        for batch, fork in in_turn(trees, jobs()):
            result = fork.result
            failing = result["by"] if result else next(iter(batch))
            before = list(batch)[: list(batch).index(failing)] if failing in batch else list(batch)
            self.tests.note(before, fit=True)
            if failing:
                yield failing
                self.tests.note([failing], fit=False)

    def _start(self, tree: Tree, mutant: Mutant) -> Fork:
        from .inside import run

        plan = list(self.plan(mutant).items())
        batches = [_by_file(part) for part in (plan[:FIRST], plan[FIRST:]) if part]
        tree.write(mutant.file, mutant.source.encode())
        return tree.start(lambda: run(batches), 60 + 10 * sum(seconds for _, seconds in plan))


def _read(line: str) -> dict[str, Any] | None:
    try:
        return dict(json.loads(line))
    except ValueError:  # cut short when it was stopped
        return None


def _file(test: str) -> str:
    return test.split("::")[0]


def _by_file(tests: list[tuple[str, float]]) -> dict[str, float]:
    """Tests of one file behind each other, so that they share its fixtures; the file with the most promising test first."""
    files = list(dict.fromkeys(_file(name) for name, _ in tests))
    return dict(sorted(tests, key=lambda test: files.index(_file(test[0]))))


def _outcome(fork: Fork, result: dict[str, Any] | None) -> dict[str, Any]:
    if result is not None:
        return {"outcome": "found" if result["by"] else "survived"} | result
    code = os.waitstatus_to_exitcode(fork.status)
    if code in (-signal.SIGPROF, -signal.SIGKILL):
        return {"outcome": "timeout"}
    return {"outcome": "crash", "why": f"ended by signal {-code}"} if code < 0 else {"outcome": "error", "why": f"ended with {code}"}
