"""CPU contention: whether other programs use the cores, which makes timings useless."""

import hashlib
import threading
import time

MIN_SHARE = 0.8
"""Minimum CPU share of each thread on an idle machine; measured: 0.83 to 1 alone, 0.5 beside one other program."""
SAMPLES = 3
"""Consecutive samples that must all find contention: system processes cause one in sixty on an idle machine."""
_BLOCK = bytes(1 << 20)


def contended(threads: int, seconds: float = 0.1) -> bool:
    """Whether `threads` busy threads get clearly less than a core each, in each of SAMPLES samples of `seconds`."""
    return all(_least_share(threads, seconds) < MIN_SHARE for _ in range(SAMPLES))


def _least_share(threads: int, seconds: float) -> float:
    """CPU time of the slowest thread, as a share of the time."""
    shares = [0.0] * threads
    barrier = threading.Barrier(threads)

    def work(number: int) -> None:
        barrier.wait()
        start, cpu_start = time.perf_counter(), time.thread_time()
        while time.perf_counter() - start < seconds:
            hashlib.sha256(_BLOCK).digest()  # releases the GIL
        shares[number] = (time.thread_time() - cpu_start) / (time.perf_counter() - start)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return min(shares)
