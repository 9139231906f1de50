"""Prompts that come as lines: how many are read before they are answered."""

import os
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mini_tf.cli.terminal.text_input import batches_of, read_lines
from mini_tf.system.errors import DataFault, UsageFault


def default_lookahead(file: Path | None, for_file: int, for_pipe: int = 1) -> int:
    """Lines that are read before they are answered: of a pipe one at a time, since its writer may wait for each answer."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if file is None else os.stat(file).st_mode
    except (OSError, ValueError):
        return for_pipe
    return for_file if stat.S_ISREG(mode) else for_pipe


def generate_from_lines(answer: Callable[[Sequence[str], Sequence[str]], None], file: Path | None, ahead: int) -> None:
    """Answer each line of a file, or of stdin, `ahead` at a time. `answer` is given texts and where they stand ("stdin:3").

    A prompt that cannot be answered is a fault of the data here; the lines before it are answered.
    """
    name = "stdin" if file is None else str(file)
    first = 1
    for texts in batches_of(read_lines(file), ahead):
        places = [f"{name}:{first + i}" for i in range(len(texts))]
        first += len(texts)
        try:
            answer(texts, places)
        except UsageFault as fault:
            raise DataFault(fault.message, hint=fault.hint, where=fault.where) from fault
