"""Notes which lines the processes reach that a test forks or starts.

A copy of this file is the `sitecustomize` of the copy of the checkout, which Python imports when it starts; it does
nothing unless tests are being recorded. A process that is killed leaves no note.
"""

import atexit
import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "reached"


def note(coverage: Any, context: str, folder: Path) -> None:
    """Leave what this process reached for the test `context`."""
    data = coverage.get_data()
    data.set_query_context(context)
    lines = {file: data.lines(file) for file in data.measured_files()}
    (folder / f"{os.getpid()}.json").write_text(json.dumps([context, lines]))


def before_leaving(action: Any) -> None:
    """Do something before this process, or a fork of it, leaves at once."""
    leave = os._exit

    def _exit(code: int) -> None:
        try:
            action()
        finally:
            leave(code)

    os._exit = _exit  # type: ignore[assignment]


def start() -> None:
    from coverage import Coverage

    coverage = Coverage(
        data_file=None, include=[f"{Path(__file__).parent}/mini_tf/*"], config_file=False, messages=False
    )
    coverage.set_option("run:disable_warnings", ["no-data-collected"])  # the last line of what a process says is read
    context = (FOLDER.parent / "diary.txt").read_text()

    def save() -> None:
        coverage.stop()
        note(coverage, context, FOLDER)

    coverage.start()
    coverage.switch_context(context)
    atexit.register(save)
    before_leaving(save)


if FOLDER.is_dir():
    start()
