"""CPU contention: whether other programs use the cores, so that no timing on them tells what is fastest."""

import hashlib
import threading
import time

LEAST = 0.8
"""Share of its time that each of our threads gets on a quiet machine at least; measured: 0.83 to 1 alone, 0.5 beside one other program."""
LOOKS = 3
"""Looks in a row that must all find contention: on a quiet machine one in sixty does, when the system itself works for a moment."""
_BLOCK = bytes(1 << 20)


def contended(threads: int, seconds: float = 0.1) -> bool:
    """Whether so many threads that compute all the time get clearly less than a core each, in each of LOOKS times `seconds`."""
    return all(_least_share(threads, seconds) < LEAST for _ in range(LOOKS))


def _least_share(threads: int, seconds: float) -> float:
    """Of the time, the share that the thread with the least CPU time computed."""
    shares = [0.0] * threads
    together = threading.Barrier(threads)

    def work(number: int) -> None:
        together.wait()
        began, worked = time.perf_counter(), time.thread_time()
        while time.perf_counter() - began < seconds:
            hashlib.sha256(_BLOCK).digest()  # without Python's lock
        shares[number] = (time.thread_time() - worked) / (time.perf_counter() - began)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return min(shares)
