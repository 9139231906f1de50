"""The command: makes a record (less than a minute on one core), or says what differs between two.

Exit code 1 where something differs, 2 where the records cannot be compared.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any

from . import __doc__ as manual
from .commands import COMMANDS
from .compare import differences, other_machine
from .making import machine, make
from .runs import RUNS

DEFAULT = Path("record.json")
MOST = 5
"""Lines about one run or command."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.record", description=manual, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help=f"the record to write; default {DEFAULT}, or none with --compare",
    )
    parser.add_argument(
        "--compare",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="the record before, and the one after if it is made already",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=["*"],
        metavar="NAME",
        help="runs and commands by name or pattern, with what they need",
    )
    asked = parser.parse_args(words)
    file = asked.file or (None if asked.compare else DEFAULT)
    if file is not None and file.exists():
        parser.error(f"{file} is there already; name another")
    before, *afterwards = [json.loads(path.read_text()) for path in asked.compare or ()] or [None]
    if len(afterwards) > 1:
        parser.error("--compare takes one record, or two")
    if before and not comparable(before["machine"], afterwards[0]["machine"] if afterwards else machine()):
        return 2
    after = afterwards[0] if afterwards else made(parser, asked.only)
    if file is not None and not afterwards:
        file.write_text(json.dumps(after, indent=1))
    return told(before, after, partial=asked.only != ["*"]) if before else 0


def comparable(before: dict[str, Any], after: dict[str, Any]) -> bool:
    changed = other_machine(before, after)
    for line in changed:
        print(f"another machine: {line}")
    return not changed


def made(parser: argparse.ArgumentParser, patterns: Sequence[str]) -> dict[str, Any]:
    runs, commands = (
        [name for name in names if any(fnmatchcase(name, one) for one in patterns)] for names in (RUNS, COMMANDS)
    )
    if not runs and not commands:
        parser.error(f"--only: no such run or command; there are {', '.join([*RUNS, *COMMANDS])}")
    began = time.monotonic()
    record = make(runs, commands, lambda line: print(line, file=sys.stderr))
    print(
        f"{len(record['runs'])} runs, {len(record['commands'])} commands: {time.monotonic() - began:.0f} s",
        file=sys.stderr,
    )
    return record


def told(before: dict[str, Any], after: dict[str, Any], partial: bool) -> int:
    found = list(differences(before, after, partial))
    for name, of_one in groupby(found, key=lambda one: one[0]):
        lines = [f"{name}: {what}" for _, what in of_one]
        for line in lines[:MOST] + [f"{name}: {len(lines) - MOST} more"] * (len(lines) > MOST):
            print("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line))  # a class may be called \x1b[2J
    counts = {
        section: len({name for name, _ in found if name.startswith(section[:-1])}) for section in ("runs", "commands")
    }
    print(
        f"{counts['runs']} of {len(after['runs'])} runs and {counts['commands']} of {len(after['commands'])} commands"
        " differ"
    )
    print(f"before: {before['commit']}; after: {after['commit']}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
