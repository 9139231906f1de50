"""CPU contention: whether other programs use the cores, so that timings on them are meaningless."""

import hashlib
import threading
import time

LEAST = 0.8
"""Minimum share of a core that each thread gets on an idle machine; measured: 0.83 to 1 alone, 0.5 beside one program.
"""
LOOKS = 3
"""Consecutive measurements that must all find contention: on an idle machine one in sixty does."""
_BLOCK = bytes(1 << 20)


def contended(threads: int, seconds: float = 0.1) -> bool:
    """Whether so many busy threads get clearly less than a core each, in each of LOOKS measurements of `seconds`."""
    return all(_least_share(threads, seconds) < LEAST for _ in range(LOOKS))


def _least_share(threads: int, seconds: float) -> float:
    """The smallest share of the time that a thread computed."""
    shares = [0.0] * threads
    together = threading.Barrier(threads)

    def work(number: int) -> None:
        together.wait()
        began, worked = time.perf_counter(), time.thread_time()
        while time.perf_counter() - began < seconds:
            hashlib.sha256(_BLOCK).digest()  # releases Python's lock
        shares[number] = (time.thread_time() - worked) / (time.perf_counter() - began)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return min(shares)
