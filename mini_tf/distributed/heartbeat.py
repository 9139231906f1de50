"""A sign of life of processes that work by themselves, so that the others wait for one at work, not for one that hangs.

In each process a thread tells all others again and again whether it still works. A stopped process (SIGSTOP, a machine
that is suspended) tells nothing.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mini_tf.system.errors import ProcessLost

DONE, WORKING, FAILED = range(3)


@contextmanager
def beating(tell: Callable[[int], int], interval: float) -> Iterator[None]:
    """Within it other processes know that this one works; its end waits until none does.

    tell: tells all processes what this one does, DONE, WORKING or FAILED, and returns the largest of all; collective.
    interval: seconds from one call to the next. An exception ends the waiting of all. Raises ProcessLost, once the
    block is done, if another process failed or did not answer.
    """
    now, over = WORKING, threading.Event()
    lost: list[ProcessLost] = []

    def beat() -> None:
        try:
            while (found := tell(now)) == WORKING:
                over.wait(interval)
            if found == FAILED:
                lost.append(ProcessLost("another process of the run failed", hint="the same command continues from the last checkpoint"))
        except ProcessLost as error:
            lost.append(error)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
        now = DONE
    except BaseException:
        now = FAILED
        raise
    finally:
        over.set()
        thread.join()
    if lost:
        raise lost[0]
