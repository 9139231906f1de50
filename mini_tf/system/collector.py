"""Python's garbage collector at the start of a process.

It looks through all objects again whenever their number has grown by a quarter, which imports alone make it do a dozen
times: a tenth of the time until the first step. Nothing that an import makes is ever garbage.
"""

import gc

_DEFERRED = (50_000, 20, 1_000)
"""Thresholds: young objects are still looked through, all of them never."""
_usual: list[tuple[int, int, int]] = []  # the thresholds before, while collection is deferred


def defer_collection() -> None:
    """Called before imports, by a process of its own."""
    _usual.append(gc.get_threshold())
    gc.set_threshold(*_DEFERRED)


def resume_collection() -> None:
    """Collect as usual from now on, except what was made before. Without effect if collection was not deferred."""
    if _usual:  # what gc.get_threshold returns does not say it: Python 3.14 has 0 as the third one
        gc.freeze()
        gc.set_threshold(*_usual.pop())
