"""What waits is computed together, in order, within its bounds; a fault of one request is not that of another."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from mini_tf.serving.batcher import Batcher, Cancelled, Job, QueueFull
from mini_tf.system.errors import UsageFault


class Counted:
    """Work that waits until it is let go, and remembers its batches; an item "bad" is refused."""

    def __init__(self) -> None:
        self.batches, self.bugs = list[list[str]](), list[Exception]()
        self.begun, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, key: Any, jobs: Sequence[Job]) -> list[list[str]]:
        self.batches.append([item for job in jobs for item in job.items])
        for job in jobs:
            job.stream(0, job.items[0])
        self.begun.release()
        assert self.go_on.acquire(timeout=60)
        if "bad" in self.batches[-1]:
            raise UsageFault("bad")
        if "bug" in self.batches[-1]:
            raise ZeroDivisionError
        return [[item.upper() for item in job.items] for job in jobs]


class Results:
    """What jobs end with, by their first item."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._done = threading.Semaphore(0)

    def job(self, *items: str, key: str = "key", **more: Any) -> Job:
        def finish(found: Any) -> None:
            self.found[items[0]] = found
            self._done.release()

        return Job(key, items, finish, len(items), **more)

    def wait(self, n: int) -> None:
        for _ in range(n):
            assert self._done.acquire(timeout=60)


@contextmanager
def busy(work: Counted, rows: int = 4, waiting: int = 8) -> Iterator[tuple[Results, Callable[[Job], None]]]:
    """A batcher whose thread computes "first" and is let go at the end of the block; what waits by then is answered."""
    results, batcher = Results(), Batcher(work, rows, waiting, work.bugs.append)
    batcher.submit(results.job("first"))
    assert work.begun.acquire(timeout=60)
    sent = [0]

    def submit(job: Job) -> None:
        batcher.submit(job)
        sent[0] += 1

    yield results, submit
    work.go_on.release(100)
    results.wait(1 + sent[0])
    batcher.close()


def test_waiting_requests_of_a_kind_are_one_batch_in_order() -> None:
    work = Counted()
    with busy(work) as (results, submit):
        for item, key in (("a", "key"), ("b", "other"), ("c", "key"), ("d", "key"), ("e", "other")):
            submit(results.job(item, key=key))
    assert work.batches == [["first"], ["a", "c", "d"], ["b", "e"]]
    assert results.found == {name: [name.upper()] for name in ("first", "a", "b", "c", "d", "e")}


def test_a_batch_has_room_for_so_many_rows_and_the_rest_waits() -> None:
    work = Counted()
    with busy(work, rows=4) as (results, submit):
        for items in (("a", "b"), ("c", "d", "e"), ("f",), ("g", "h")):
            submit(results.job(*items))
    assert work.batches == [["first"], ["a", "b", "f"], ["c", "d", "e"], ["g", "h"]]
    assert results.found["c"] == ["C", "D", "E"]


def test_what_may_not_be_shared_is_computed_apart() -> None:
    work = Counted()
    with busy(work) as (results, submit):
        for n, prompt in enumerate(("x", "y", "x")):
            submit(results.job(f"{prompt}{n}", alone=frozenset([prompt])))
    assert work.batches == [["first"], ["x0", "y1"], ["x2"]]


def test_beyond_the_queue_a_request_is_refused_and_none_is_lost() -> None:
    work = Counted()
    with busy(work, rows=1, waiting=3) as (results, submit):
        for item in "abc":
            submit(results.job(item))
        with pytest.raises(QueueFull):
            submit(results.job("d"))
    assert results.found.keys() == {"first", *"abc"}


@pytest.mark.parametrize(("item", "fault", "n_bugs"), [("bad", "bad", 0), ("bug", "ZeroDivisionError", 1)])
def test_a_fault_of_one_request_leaves_the_others_of_its_batch_alone(item: str, fault: str, n_bugs: int) -> None:
    work = Counted()
    with busy(work) as (results, submit):
        for one in ("a", item, "c"):
            submit(results.job(one))
    assert results.found["a"] == ["A"]
    assert results.found["c"] == ["C"]
    assert fault in str(results.found[item])
    assert len(work.bugs) == n_bugs


def test_what_a_stream_was_told_is_not_told_twice_after_a_fault() -> None:
    work, told = Counted(), list[str]()
    with busy(work) as (results, submit):
        submit(results.job("a", follow=lambda number, piece: told.append(piece)))
        submit(results.job("bad"))
        submit(results.job("c"))
    assert told == ["a"]
    assert "bad" in str(results.found["a"])
    assert results.found["c"] == ["C"]


def test_what_waits_at_the_end_is_given_up_and_nothing_more_is_taken() -> None:
    work, results = Counted(), Results()
    batcher = Batcher(work, 4, 8, work.bugs.append)
    batcher.submit(results.job("first"))
    assert work.begun.acquire(timeout=60)
    batcher.submit(results.job("a"))
    batcher.close(seconds=0.0)
    with pytest.raises(QueueFull):
        batcher.submit(results.job("b"))
    work.go_on.release(100)
    results.wait(2)
    assert results.found["first"] == ["FIRST"]
    assert isinstance(results.found["a"], Cancelled)
    assert work.batches == [["first"]]


def test_what_was_given_up_or_is_late_is_not_computed() -> None:
    work = Counted()
    with busy(work) as (results, submit):
        given_up = results.job("a")
        submit(given_up)
        submit(results.job("b", deadline=0.0))
        submit(results.job("c"))
        given_up.cancel()
    assert work.batches == [["first"], ["c"]]
    assert isinstance(results.found["a"], Cancelled)
    assert isinstance(results.found["b"], Cancelled)
