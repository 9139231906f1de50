"""Prompts from lines of a file or pipe, in batches."""

import os
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mini_tf.cli.terminal.text_input import batches_of, read_lines
from mini_tf.system.errors import DataFault, UsageFault


def default_lookahead(file: Path | None, for_file: int, for_pipe: int = 1) -> int:
    """Lines per batch: one for a pipe, since its writer may wait for each output."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if file is None else os.stat(file).st_mode
    except (OSError, ValueError):
        return for_pipe
    return for_file if stat.S_ISREG(mode) else for_pipe


def generate_from_lines(generate: Callable[[Sequence[str], Sequence[str]], None], file: Path | None, lookahead: int) -> None:
    """Generate from each line of a file or of stdin, `lookahead` lines at a time. `generate`: called with prompts and
    their "stdin:3".

    A prompt that is refused raises DataFault; the lines before it are processed.
    """
    name = "stdin" if file is None else str(file)
    first = 1
    for texts in batches_of(read_lines(file), lookahead):
        where = [f"{name}:{first + i}" for i in range(len(texts))]
        first += len(texts)
        try:
            generate(texts, where)
        except UsageFault as fault:
            raise DataFault(fault.message, hint=fault.hint, where=fault.where) from fault
