"""A sign of life of processes that work by themselves, so that the others wait for one at work, not for one that hangs.

In each process a thread tells all others again and again whether it still works. A stopped process (SIGSTOP, a machine
that is suspended) tells nothing.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mini_tf.system.errors import ProcessLost


@contextmanager
def beating(any_works: Callable[[bool], bool], interval: float) -> Iterator[None]:
    """Within it other processes know that this one works; its end waits until none does.

    any_works: tells all processes whether this one works, and returns whether any does; collective. interval: seconds
    from one call to the next. Raises ProcessLost, once the block is done, if another process did not answer.
    """
    done, left = threading.Event(), threading.Event()
    lost: list[ProcessLost] = []

    def beat() -> None:
        try:
            while not left.is_set() and any_works(not done.is_set()):
                done.wait(interval)
        except ProcessLost as error:
            lost.append(error)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    except BaseException:  # this process ends, which the others notice
        left.set()
        raise
    finally:
        done.set()
        thread.join()
    if lost:
        raise lost[0]
