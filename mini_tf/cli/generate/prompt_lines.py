"""Prompts from lines of a file or pipe, in batches."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mini_tf.recipe.text_input import read_lines
from mini_tf.system.errors import DataFault, UsageFault, batches_of


def default_lookahead(file: Path | None, for_file: int, for_pipe: int = 1) -> int:
    """Lines per batch: one for a pipe, since its writer may wait for each output."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if file is None else os.stat(file).st_mode
    except (OSError, ValueError):
        return for_pipe
    return for_file if stat.S_ISREG(mode) else for_pipe


def prompt_batches(file: Path | None, lookahead: int) -> Iterator[tuple[list[str], list[str]]]:
    """The lines of a file or of stdin, `lookahead` at a time, and the place of each, such as "stdin:3"."""
    name = "stdin" if file is None else str(file)
    first = 1
    for texts in batches_of(read_lines(file), lookahead):
        yield texts, [f"{name}:{first + i}" for i in range(len(texts))]
        first += len(texts)


@contextmanager
def faults_of_lines() -> Iterator[None]:
    """A prompt that is refused is an error of the data, not of the command line."""
    try:
        yield
    except UsageFault as fault:
        raise DataFault(fault.message, hint=fault.hint, where=fault.where) from fault
