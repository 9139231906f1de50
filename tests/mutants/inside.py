"""What runs in the fork: pytest, with a plugin that notes what tests reach, or one that runs chosen tests in order."""

import json
import os
import shutil
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from .elsewhere import before_leaving, note
from .forked import PYTEST

SPARE = 10.0
"""Seconds of the processor that a test has, besides five times what it took without a fault, before it counts as
hanging.
"""


def seconds() -> float:
    """Of the processor, with those of processes that have ended: what the machine does besides makes no difference."""
    return sum(os.times()[:4])


class Recorder:
    """Notes for every test of a file how long it takes, and which lines it and the shared fixtures it uses reach."""

    def __init__(self, sources: list[str], diary: Path) -> None:
        from coverage import Coverage

        self.diary, self.elsewhere, self.pid = diary, diary.with_name("reached"), os.getpid()
        shutil.rmtree(self.elsewhere, ignore_errors=True)
        self.elsewhere.mkdir()
        before_leaving(lambda: os.getpid() == self.pid or note(self.coverage, self.context, self.elsewhere))

        self.coverage = Coverage(data_file=None, include=sources, config_file=False, messages=False)
        self.tests: dict[str, dict[str, Any]] = {}
        self.fixtures: dict[str, float] = {}
        self.context = ""

    def _switch(self, context: str) -> str:
        before, self.context = self.context, context
        self.coverage.switch_context(context)
        self.diary.write_text(context)
        return before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        for part in vars(item.module).values():  # a helper that keeps its result reaches its lines in every test
            if hasattr(part, "cache_clear") and getattr(part, "__module__", "") == item.module.__name__:
                part.cache_clear()
        self._switch(item.nodeid)
        fixtures_before, began = sum(self.fixtures.values()), seconds()
        self.tests[item.nodeid] = {"outcome": "passed"}
        try:
            return (yield)
        finally:
            spent = seconds() - began - (sum(self.fixtures.values()) - fixtures_before)
            found = {name: item._fixtureinfo.name2fixturedefs.get(name) for name in item.fixturenames}
            shared = [
                self._name(fixture)
                for several in found.values()
                if several
                for fixture in several
                if fixture.scope != "function"
            ]
            self.tests[item.nodeid] |= {"seconds": max(spent, 0.0), "fixtures": shared}
            self._switch("")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        name, began = self._name(fixturedef), seconds()
        before = self._switch(name)
        try:
            return (yield)
        finally:
            self.fixtures[name] = self.fixtures.get(name, 0.0) + seconds() - began
            self._switch(before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.tests[report.nodeid]["outcome"] = report.outcome

    @staticmethod
    def _name(fixture: Any) -> str:
        return f"fixture {fixture.baseid} {fixture.argname}"

    def result(self) -> dict[str, Any]:
        self.coverage.stop()
        notes = [json.loads(file.read_text()) for file in self.elsewhere.glob("*.json")]
        shutil.rmtree(self.elsewhere)
        data = self.coverage.get_data()
        lines: dict[str, dict[str, list[int]]] = {}
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts:
                    lines.setdefault(context, {}).setdefault(os.path.relpath(file), []).append(line)
        for context, files in notes:
            for file, reached in files.items():
                lines.setdefault(context, {}).setdefault(os.path.relpath(file), []).extend(reached)
        lines = {
            context: {file: sorted(set(reached)) for file, reached in files.items()} for context, files in lines.items()
        }
        return {"tests": self.tests, "fixtures": self.fixtures, "lines": lines}


def record(test_file: str, sources: list[str], diary: Path) -> dict[str, Any]:
    """Run a test file."""
    recorder = Recorder(sources, diary)
    recorder.coverage.start()
    code = pytest.main([*PYTEST, test_file], plugins=[recorder])
    return recorder.result() | {"code": int(code)}


class Chosen:
    """Runs given tests in the order given, until one fails; a test that hangs ends the process."""

    def __init__(self, limits: dict[str, float], diary: Path) -> None:
        self.diary = diary
        self.limits, self.order = limits, {name: i for i, name in enumerate(limits)}
        self.failed: str | None = None
        self.why = ""
        self.ran = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.order), key=lambda item: self.order[item.nodeid]
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.ran += 1
        self.diary.write_text(item.nodeid)
        signal.setitimer(signal.ITIMER_PROF, SPARE + 5 * self.limits[item.nodeid])
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed, self.why = report.nodeid, _why(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.failed:
            self.failed, self.why = report.nodeid, f"when it is imported: {_why(report)}"


def _why(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return " | ".join(line.strip() for line in (crash.message if crash else str(report.longrepr)[-400:]).splitlines())[
        :400
    ]


def run(batches: list[dict[str, float]], diary: Path) -> dict[str, Any]:
    """Run batches of tests, each with the seconds it took; says which test failed, if one did, and notes in a file
    which it is at.
    """
    began, ran = seconds(), 0
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for batch in batches:
        signal.setitimer(signal.ITIMER_PROF, 30)
        chosen = Chosen(batch, diary)
        files = list(dict.fromkeys(name.split("::")[0] for name in batch))
        code = int(pytest.main([*PYTEST, "-x", *files], plugins=[chosen]))
        ran += chosen.ran
        if chosen.failed or code not in (0, 5):
            return {
                "by": chosen.failed or f"pytest ended with {code}",
                "why": chosen.why,
                "ran": ran,
                "seconds": seconds() - began,
            }
    return {"by": "", "why": "", "ran": ran, "seconds": seconds() - began}
