"""Turn crashes of the tokenizers library (Rust panics are no Exceptions), timeouts and token floods into DataFault."""

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
BYTES_PER_TIMEOUT = 4 << 20
"""Bytes that may take limits().tokenizer_seconds."""


def call_guarded(doing: str, work: Callable[[], Result], n_bytes: int | None = None) -> Result:
    """The result of `work`, a call of the library. Raises DataFault if it crashes or takes too long for `n_bytes`.

    Without `n_bytes` there is no timeout: for a few bytes a thread would cost a hundred times as much as the call. With
    it the call runs in a thread, which is abandoned at a timeout: the library releases the GIL and cannot be
    interrupted.
    """
    with suppressed_stderr(), guarded(doing):
        if n_bytes is None:
            return work()
        return _in_time(doing, work, limits().tokenizer_seconds * max(1.0, n_bytes / BYTES_PER_TIMEOUT))


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
    except OutOfTime:  # not the built-in TimeoutError before Python 3.11
        hint = "use another tokenizer, or raise the limit with MINITF_LIMITS=tokenizer_seconds=600"
        raise DataFault(f"the tokenizer timed out after {seconds:,.0f} seconds of {doing}", hint=hint) from None


@contextlib.contextmanager
def guarded(doing: str) -> Iterator[None]:
    """Turn every exception of the tokenizers library, panics included, into a DataFault; minitf's own errors pass."""
    try:
        yield
    except MinitfError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            text = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataFault(f"the tokenizer crashed while {doing}: {text[:200]}") from None
        raise


def check_token_count(text: str, n_tokens: int) -> None:
    """Raise DataFault if a text has far more tokens than bytes."""
    if n_tokens > 64 + limits().tokenizer_tokens * len(text.encode()):
        fault = f"the tokenizer makes {n_tokens} tokens from {len(text)} characters, too many; use another tokenizer"
        raise DataFault(fault)


_POLL_SECONDS = 0.1
"""Python handles a signal only between two polls of the thread."""


def interruptible_call(work: Callable[[], Result]) -> Result:
    """Run `work` in a daemon thread, and return or raise its result; an interrupt does not wait for the thread."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised again in the calling thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_POLL_SECONDS)
    if errors:
        raise errors[0]
    return results[0]
