"""Whether other programs are at work on this machine, so that no clock tells what is fastest."""

import hashlib
import threading
import time

LEAST = 0.8
"""Of its time, what each of our threads must be given where nobody else is at work; measured: 0.83 to 1 alone, 0.5 beside one other."""
_BLOCK = bytes(1 << 20)


def contended(threads: int, seconds: float = 0.1) -> bool:
    """Whether so many threads that compute all the time get clearly less than a core each, for `seconds`."""
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
    return min(shares) < LEAST
