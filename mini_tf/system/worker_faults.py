"""The error that ends one of several processes, in a file for its launcher, which prints the one that came first."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mini_tf.system import errors
from mini_tf.system.errors import MinitfError, Unavailable

_FIELDS = ("message", "hint", "where", "faults")


class WorkerFault(Unavailable):
    """An error of another process, with its exit code.

    lost: it only says that yet another process is gone. output: what the process would have printed with --json.
    """

    def __init__(self, exit_code: int, message: str, *, lost: bool = False, output: Mapping[str, Any] | None = None, **given: Any) -> None:
        super().__init__(message, **given)
        self.exit_code, self.lost, self.output = exit_code, lost, output or {}

    def of(self, who: str) -> "WorkerFault":
        """The error, with the process that had it."""
        given = {name: getattr(self, name) for name in ("hint", "where", "faults") if name != "faults" or len(self.faults) > 1}
        return WorkerFault(self.exit_code, f"{who}: {self.message}", output=self.output, **given)


def write_fault(folder: Path, rank: int, error: MinitfError, *, exit_code: int, lost: bool, output: Mapping[str, Any]) -> None:
    """Write the error of a process. exit_code: that of an interrupted process is not its error's."""
    facts = {"exit_code": exit_code, "lost": lost, "output": output, **_fields(error)}
    (folder / f"rank-{rank}.json").write_text(json.dumps(facts, default=str))


def read_fault(folder: Path, rank: int) -> WorkerFault | None:
    """The error that a process has written, if any."""
    path = folder / f"rank-{rank}.json"
    if not path.is_file():
        return None
    fields: Mapping[str, Any] = json.loads(path.read_text())
    return WorkerFault(**fields)


def fields_of(error: MinitfError) -> dict[str, Any]:
    """An error as JSON, for another process to raise (`error_of`)."""
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    return {"kind": kind.__name__, **_fields(error)}


def error_of(fields: Mapping[str, Any]) -> MinitfError:
    """The error that another process described by `fields_of`."""
    error: MinitfError = getattr(errors, fields["kind"])(**{name: fields[name] for name in _FIELDS})
    return error


def same_error(own: MinitfError | None, fields: Mapping[str, Any]) -> MinitfError:
    """`own`, if that is the error that `fields` describes, else `error_of` them: this process keeps its traceback."""
    return own if own is not None and fields_of(own) == fields else error_of(fields)


def _fields(error: MinitfError) -> dict[str, Any]:
    values = {name: getattr(error, name) for name in _FIELDS}
    return {name: [*value] if isinstance(value, tuple) else value for name, value in values.items()}  # as JSON has them
