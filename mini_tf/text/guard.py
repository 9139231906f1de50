"""The tokenizers library at arm's length: a crash of it (a Rust panic is no Exception) or a flood of tokens becomes a DataFault."""

import contextlib
import os
import sys
from collections.abc import Iterator

from mini_tf.errors import DataFault


@contextlib.contextmanager
def guarded(doing: str) -> Iterator[None]:
    """Turns whatever the tokenizers library throws, its panics included, into a DataFault."""
    try:
        yield
    except DataFault:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            text = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataFault(f"the tokenizer crashed while {doing}: {text[:200]}") from None
        raise


@contextlib.contextmanager
def without_backtraces() -> Iterator[None]:
    """Sends file descriptor 2 nowhere for a moment: a Rust panic writes to it directly, before anyone can catch it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def refuse_many(text: str, n_tokens: int) -> None:
    """DataFault where a text became far more tokens than it has bytes."""
    if n_tokens > 64 + 16 * len(text.encode()):
        raise DataFault(f"the tokenizer makes {n_tokens} tokens of {len(text)} characters; it cannot be used")
