"""The tokenizers library at arm's length: a crash of it (a Rust panic is no Exception), a flood of tokens or a call without end
becomes a DataFault.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as OutOfTime
from typing import TypeVar

from mini_tf.system.errors import DataFault, MinitfError
from mini_tf.system.limits import limits
from mini_tf.system.stderr import suppressed_stderr

Result = TypeVar("Result")
PORTION = 4 << 20
"""Bytes that limits().tokenizer_seconds are for."""


def called(doing: str, work: Callable[[], Result], n_bytes: int | None = None) -> Result:
    """What `work`, a call of the library, gives back; DataFault where it crashes, or takes too long for so many bytes.

    Without `n_bytes` it is called directly: for a few bytes a thread would cost a hundred times what the call does. Else it
    runs in a thread of its own, which is left behind where it comes to no end: the library lets go of the interpreter while
    it works, and cannot be stopped.
    """
    with suppressed_stderr(), guarded(doing):
        return work() if n_bytes is None else _in_time(doing, work, limits().tokenizer_seconds * max(1.0, n_bytes / PORTION))


def _in_time(doing: str, work: Callable[[], Result], seconds: float) -> Result:
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="tokenizer", daemon=True).start()
    try:
        return future.result(seconds)
    except OutOfTime:  # before Python 3.11 not the TimeoutError that is built in
        hint = "take another tokenizer, or allow it more: MINITF_LIMITS=tokenizer_seconds=600"
        raise DataFault(f"the tokenizer has not come to an end after {seconds:,.0f} seconds of {doing}", hint=hint) from None


@contextlib.contextmanager
def guarded(doing: str) -> Iterator[None]:
    """Turns whatever the tokenizers library throws, its panics included, into a DataFault; our own refusals pass."""
    try:
        yield
    except MinitfError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            text = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataFault(f"the tokenizer crashed while {doing}: {text[:200]}") from None
        raise


def refuse_many(text: str, n_tokens: int) -> None:
    """DataFault where a text became far more tokens than it has bytes."""
    if n_tokens > 64 + limits().tokenizer_tokens * len(text.encode()):
        raise DataFault(f"the tokenizer makes {n_tokens} tokens of {len(text)} characters; it cannot be used")
