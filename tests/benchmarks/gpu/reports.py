"""How the processes of this benchmark report: a line of JSON for each result, which has a key with a side's name."""

import json
import subprocess
from typing import Any

from ..shapes import SHAPES

OWN, PLAIN = "minitf", "plain torch"


def sides_of(shape: str, nanogpt: bool) -> list[str]:
    """The sides of a step. minitf comes first, since it measures how many rows fit into memory."""
    peer = ["nanoGPT", "nanoGPT compiled"] if nanogpt and not SHAPES[shape].masked else []
    return [OWN, PLAIN, f"{PLAIN} compiled", *peer]


def tell(key: str, **figures: Any) -> None:
    """Print a result; a later one of the same key replaces it."""
    print(json.dumps({"key": key, **figures}), flush=True)


def reason(error: BaseException) -> str:
    """An error in one line; of a command, which is long, the exit code."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"exit code {error.returncode} of {' '.join(error.cmd)[:100]}"
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300] if lines else 'no message'}"


class Quiet:
    """Takes the messages of a run that no console shows; lines: what was said."""

    log = crash = None

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    detail = warn = say
