"""The exceptions for errors that a user can correct, each with its exit code, and warnings about results.

    MinitfError              1   base class
    ├── UsageFault       2   the command line was wrong
    ├── RecipeFault      3   the recipe was refused
    ├── DataFault        4   the data or the tokenizer was refused
    ├── RunFault         5   a run folder, checkpoint or model file was refused
    ├── StorageFault     6   out of memory or disk, or input/output failed
    ├── Diverged         7   the loss or a gradient is not finite
    ├── GateMissed       8   an --assert or --expect was not met; the work itself succeeded
    └── Unavailable      9   a device, an optional package or another process is missing
        └── ProcessLost  9   another of several processes ended, hangs or cannot be reached; it knows why

A ValueError inside minitf means a wrong call in the code, not a user's error.
"""

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import TypeVar

Fault = TypeVar("Fault", bound="MinitfError")
Item = TypeVar("Item")


class MinitfError(Exception):
    """message: where, what is, what must be. hint: how to correct it. where: locations such as "recipe.yaml:14".

    faults: several errors found at once, one line each; `message` is then the first line or a summary.
    """

    exit_code = 1

    def __init__(
        self, message: str, *, hint: str | None = None, where: Sequence[str] = (), faults: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = tuple(where)
        self.faults = tuple(faults) or (message,)

    @property
    def lines(self) -> Sequence[str]:
        """The lines that a command prints: location first; a single fault has the hint on the same line."""
        if len(self.faults) > 1:
            return [*self.faults, *([self.hint] if self.hint else [])]
        [line] = self.faults
        if self.where and self.where[0] not in line:
            line = f"{self.where[0]}: {line}"
        return [f"{line}; {self.hint}" if self.hint else line]

    @classmethod
    def located(cls: type[Fault], where: str, message: str, hint: str | None = None) -> Fault:
        """An error at one location, which is prefixed to the message."""
        return cls(f"{where}: {message}", hint=hint, where=(where,))

    @classmethod
    def about(cls: type[Fault], path: object, predicate: str, hint: str | None = None) -> Fault:
        """An error about a file or folder, which is the subject of the message: "outputs/x is not a run folder"."""
        return cls(f"{path} {predicate}", hint=hint, where=(str(path),))


class ResultWarning(UserWarning):
    """A result may be wrong, for a reason that the code in between cannot hand on; a command prints it as one line."""


def raise_first_fault(items: Iterable[Item | MinitfError]) -> Iterator[Item]:
    """Yield the items before the first error, then raise it."""
    for item in items:
        if isinstance(item, MinitfError):
            raise item
        yield item


def batches_of(items: Iterator[Item], n: int) -> Iterator[list[Item]]:
    """Lists of `n` items, the last one shorter; items before a DataFault are yielded before it is raised."""
    group: list[Item] = []
    try:
        for item in items:
            group.append(item)
            if len(group) == n:
                yield group
                group = []
    except DataFault:
        if group:
            yield group
        raise
    if group:
        yield group


class UsageFault(MinitfError):
    exit_code = 2


class RecipeFault(MinitfError):
    exit_code = 3


class DataFault(MinitfError):
    exit_code = 4


class RunFault(MinitfError):
    exit_code = 5


class StorageFault(MinitfError):
    exit_code = 6


class Diverged(MinitfError):
    exit_code = 7


class GateMissed(MinitfError):
    exit_code = 8


class Unavailable(MinitfError):
    exit_code = 9


class ProcessLost(Unavailable):
    pass


_NO_MEMORY = (
    "can't allocate memory",
    "out of memory",
    "std::bad_alloc",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "can't start new thread",
)
_NO_ADDRESS_SPACE = ("failed to map segment", "cannot allocate memory")
"""Of the loader of shared libraries, in an ImportError."""


def to_minitf_error(error: Exception) -> MinitfError:
    """Exit code 6 for disk and memory errors, 9 for device errors, 1 for others (bugs); a MinitfError is unchanged."""
    if isinstance(error, MinitfError):
        return error
    text = reason_of(error) if not isinstance(error, KeyError) else str(error)
    if is_out_of_memory(error):
        hint = "continue with half the train.micro_batch_size; the result stays valid but is not bit-identical"
        if isinstance(error, ImportError):
            hint = "allow the process more memory (ulimit -v)"
        return StorageFault(f"out of memory: {text}", hint=hint)
    if _is_device(error):
        return Unavailable(
            f"the device failed: {text}", hint="`minitf doctor` lists working devices; then the same command continues"
        )
    if is_of_compiler(error):
        fault = f"torch.compile failed: {compiler_reason(error)}"
        return Unavailable(
            fault, hint="runtime.compile=false, and the same command continues; results may differ in the last bits"
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFault(f"the disk is full: {text}", hint="free some space, then the same command continues")
    if isinstance(error, OSError):
        return StorageFault(f"input/output error: {text}")
    return MinitfError(f"a bug in minitf: {type(error).__name__}: {text}")


def reason_of(error: Exception) -> str:
    """The reason of an error of a library, as people read it, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    if isinstance(error, KeyError):
        return f"the key {error} is missing"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]


def is_of_compiler(error: BaseException | None) -> bool:
    """Whether torch.compile raised it."""
    return type(error).__module__.startswith(("torch._inductor", "torch._dynamo", "triton"))


def compiler_reason(error: Exception) -> str:
    """Why torch.compile failed, in one line: what a program that it ran printed of an error, else its own message."""
    while isinstance(inner := getattr(error, "inner_exception", None), Exception):
        error = inner
    printed = getattr(error, "output", None)
    text = printed if isinstance(printed, str) else reason_of(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no message"]
    return f"{type(error).__name__}: {next((line for line in lines if 'error' in line.lower()), lines[0])[:200]}"


def is_bug(error: Exception) -> bool:
    """Whether an exception is unexpected, so that its traceback is saved."""
    return not isinstance(error, MinitfError) and to_minitf_error(error).exit_code == MinitfError.exit_code


def is_out_of_memory(error: Exception) -> bool:
    # PyTorch raises OutOfMemoryError for a GPU, RuntimeError for main memory. It is slow to import: compare names.
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, ImportError):
        return any(words in str(error).lower() for words in _NO_ADDRESS_SPACE)
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY))


def _is_device(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and (
        type(error).__name__ == "AcceleratorError" or str(error).startswith("CUDA error")
    )


def near(word: str, words: Sequence[str], cutoff: float = 0.6) -> str | None:
    """The most similar of `words`; None if none is similar."""
    matches = get_close_matches(word, words, n=1, cutoff=cutoff) if len(word) <= 200 else []
    return matches[0] if matches else None


def suggest(
    name: str, known: Iterable[str], otherwise: str = "", shown: Callable[[str], str] = str, cutoff: float = 0.6
) -> str:
    """The hint for an unknown name: "did you mean NAME?" with the most similar of `known`, or `otherwise`.

    shown: a known name as the hint shows it.
    """
    similar = near(name, list(known), cutoff)
    return otherwise if similar is None else f"did you mean {shown(similar)}?"
