"""Command lines that several processes run together, one line after the other, so that torch is imported once for all.

python tests/processes.py LINES    # a JSON list of argument lists; started once per rank, with RANK and WORLD_SIZE
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mini_tf.system.processes import RENDEZVOUS

FILE = Path(__file__)


def together(size: int, lines: Sequence[Sequence[str]], folder: Path, at_most: float = 600.0) -> list[list[int]]:
    """Run the lines in `size` processes, in `folder`; returns the exit codes of each line, by rank."""
    (folder / f"lines-{size}.json").write_text(json.dumps([[*map(str, line)] for line in lines]))
    several = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), RENDEZVOUS: str(folder / f"meeting-{size}")}
    started = [
        subprocess.Popen(
            [sys.executable, str(FILE), f"lines-{size}.json"],
            cwd=folder,
            env={**os.environ, **(several if size > 1 else {}), "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    told = [one.communicate(timeout=at_most) for one in started]
    codes = [json.loads(out.splitlines()[-1]) if out.strip() else [err[-3000:]] for out, err in told]
    assert all(one.returncode == 0 for one in started), "\n".join(err[-3000:] for _, err in told)
    return [list(of_line) for of_line in zip(*codes, strict=True)]


def run(lines: list[list[str]]) -> list[int]:
    from mini_tf.cli.app import main

    codes, meeting = [], os.environ.get(RENDEZVOUS)
    for number, line in enumerate(lines):
        if meeting is not None:  # a file is for one group
            os.environ[RENDEZVOUS] = f"{meeting}-{number}"
        try:
            main(line)
        except SystemExit as leaving:
            codes.append(int(leaving.code or 0))
    return codes


if __name__ == "__main__":
    print(json.dumps(run(json.loads(Path(sys.argv[1]).read_text()))))
