"""The console of one of several processes: rank 0 prints, and each leaves its error to the launcher, if it has one."""

import os
from pathlib import Path
from typing import Any

from mini_tf.cli.terminal.console import Console
from mini_tf.system.errors import MinitfError, ProcessLost
from mini_tf.system.processes import FAULTS, place
from mini_tf.system.worker_faults import write_fault


class WorkerConsole(Console):
    """Started by torchrun, whose own exit code is 1 for every error, each process prints its error after its rank."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.rank = place().rank
        self.quiet = self.quiet or self.rank > 0

    def warn(self, line: str) -> None:
        if self.rank == 0:
            super().warn(line)

    def print_output(self, text: str, end: str = "\n") -> None:
        if self.rank == 0:
            super().print_output(text, end)

    def emit_json(self, **given: Any) -> None:
        if self.rank == 0:
            super().emit_json(**given)

    def show(self, picture: Any, *given: Any, **chosen: Any) -> None:
        if self.rank == 0:
            super().show(picture, *given, **chosen)

    def close(self, exit_code: int, error: MinitfError | None = None) -> None:
        folder = os.environ.get(FAULTS)
        if error is not None and folder is not None:
            lost = isinstance(error, ProcessLost)
            write_fault(Path(folder), self.rank, error, exit_code=exit_code, lost=lost, output=self.envelope)
            if self.log is not None:
                self.log(error.message)
        elif self.rank == 0:
            super().close(exit_code, error)
        elif error is not None:
            self.json = False
            super().close(exit_code, type(error)(f"rank {self.rank}: {error.message}", hint=error.hint))
