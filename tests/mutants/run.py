"""Puts each mutant to the tests that reach it, and keeps what came of it.

A result counts as long as the file with the fault is as it was, and the test that found it; a mutant that survived is
put to tests that are new, have changed, or fit into a higher limit.
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
        known = self._known(mutant)
        if known is None or (known["outcome"] == "survived" and self.plan(mutant)) or known["outcome"] == "error":
            return None
        changed = known["outcome"] != "survived" and known.get("version") != self.tests.version(known["by"])
        return None if changed or known["by"] in self.tests.unfit else known

    def _known(self, mutant: Mutant) -> dict[str, Any] | None:
        known = self.kept.get(mutant.key)
        return known if known and known["source"] == digest(mutant.source.encode()) else None

    def plan(self, mutant: Mutant) -> dict[str, float]:
        """The tests to try, as many as fit into the limit (at least one), without those that have not seen this fault
        as they are now.
        """
        known = self._known(mutant) or {"tried": [], "by": ""}
        reaching = self.tests.for_line(mutant.file, mutant.line)
        chosen: dict[str, float] = {}
        spent, paid = 0.0, set()
        for test in sorted(reaching, key=lambda test: test != known["by"]):
            own, shared = self.tests.costs(test)
            more = own + sum(seconds for fixture, seconds in shared.items() if fixture not in paid)
            if not chosen or spent + more <= self.limit:
                chosen[test] = reaching[test]
                spent += more
                paid |= shared.keys()
        return {test: seconds for test, seconds in chosen.items() if self._stamp(test) not in known["tried"]}

    def _stamp(self, test: str) -> str:
        return f"{test} {self.tests.version(test)}"

    def run(self, trees: list[Tree], mutants: list[Mutant]) -> Iterator[tuple[Mutant, dict[str, Any]]]:
        """Run mutants; yields each with its result, which is kept before that."""

        def jobs() -> Iterator[tuple[Mutant, Any]]:
            for mutant in mutants:
                yield mutant, lambda tree, mutant=mutant: self._start(tree, mutant)

        for mutant, fork in in_turn(trees, jobs()):
            result = fork.result
            fork.tree.restore(mutant.file)
            known = {"key": mutant.key, "file": mutant.file, "source": digest(mutant.source.encode()), "tried": []}
            known |= {"by": "", "why": "", "seconds": 0.0} | _outcome(fork, result)
            known["version"] = self.tests.version(known["by"])
            if known["outcome"] == "survived":
                known["tried"] = sorted(
                    {*(self._known(mutant) or known)["tried"], *map(self._stamp, self.plan(mutant))}
                )
            self.kept[mutant.key] = known
            with self.file.open("a") as log:
                log.write(json.dumps(known) + "\n")
            yield mutant, known

    def control(self, trees: list[Tree], mutants: list[Mutant]) -> Iterator[str]:
        """Run the tests that found a mutant as they ran then, but without a fault; yields those that fail now too,
        which are unfit.
        """
        from .inside import run

        finders = {known["by"] for mutant in mutants if (known := self.of(mutant))}
        asked = [test for test in sorted(finders) if test in self.tests and test not in self.tests.controlled]
        files = {
            file: {test: self.tests.seconds(test) for test in asked if _file(test) == file}
            for file in map(_file, asked)
        }

        def jobs() -> Iterator[tuple[dict[str, float], Any]]:
            while files:
                _, batch = files.popitem()
                yield (
                    batch,
                    lambda tree, batch=batch: tree.start(
                        lambda: run([batch], tree.diary), 60 + 10 * sum(batch.values())
                    ),
                )

        for batch, fork in in_turn(trees, jobs()):
            failing = _outcome(fork, fork.result)["by"]
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
        return tree.start(lambda: run(batches, tree.diary), 60 + 10 * sum(seconds for _, seconds in plan))


def _read(line: str) -> dict[str, Any] | None:
    try:
        return dict(json.loads(line))
    except ValueError:  # cut short when it was stopped
        return None


def _file(test: str) -> str:
    return test.split("::")[0]


def _by_file(tests: list[tuple[str, float]]) -> dict[str, float]:
    """Tests of one file behind each other, so that they share its fixtures; the file with the most promising test
    first.
    """
    files = list(dict.fromkeys(_file(name) for name, _ in tests))
    return dict(sorted(tests, key=lambda test: files.index(_file(test[0]))))


def _outcome(fork: Fork, result: dict[str, Any] | None) -> dict[str, Any]:
    if result is not None:
        return {"outcome": "found" if result["by"] else "survived"} | result
    code = os.waitstatus_to_exitcode(fork.status)
    if code in (-signal.SIGPROF, -signal.SIGKILL):
        return {"outcome": "timeout", "by": fork.tree.diary.read_text()}
    return {"outcome": "crash" if code < 0 else "error", "by": fork.tree.diary.read_text(), "why": f"ended with {code}"}
