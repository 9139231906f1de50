"""What an exception means to a user: its refusal and exit code, also where Python or torch raised it and not minitf."""

import errno

from mini_tf.system.errors import Refusal, StorageFault, Unavailable

_NO_MEMORY = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


def refusal_of(error: Exception) -> Refusal:
    """Disk and memory are storage faults (6), a lost device is 9, what nobody foresaw is a bug (1); a refusal is itself."""
    if isinstance(error, Refusal):
        return error
    text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
    if is_memory(error):
        hint = "training goes on with half the train.micro_batch_size; its result stays valid, though not equal to the bit"
        return StorageFault(f"out of memory: {text}", hint=hint)
    if _is_device(error):
        return Unavailable(f"the device failed: {text}", hint="`minitf doctor` shows which work; then the same command continues")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFault(f"the disk is full: {text}", hint="free some space, then the same command continues")
    if isinstance(error, OSError):
        return StorageFault(f"input/output error: {text}")
    return Refusal(f"a bug in minitf: {type(error).__name__}: {text}")


def is_bug(error: Exception) -> bool:
    """Whether nobody foresaw it, so that its traceback is worth keeping."""
    return not isinstance(error, Refusal) and refusal_of(error).exit_code == Refusal.exit_code


def is_memory(error: Exception) -> bool:
    # torch raises OutOfMemoryError for a GPU and a bare RuntimeError for main memory; torch itself is not imported here.
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY))


def _is_device(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and (type(error).__name__ == "AcceleratorError" or str(error).startswith("CUDA error"))
