"""While one process works by itself the others wait, as long as it answers."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from processes import everywhere, forked
from torch.distributed import FileStore, HashStore

from mini_tf.parallel import torch_group
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.torch_group import DONE, FAILED, WORKING, TorchGroup, heartbeat, joined, meet
from mini_tf.system.errors import DataFault, ProcessLost, Unavailable
from mini_tf.system.processes import JOINED, RENDEZVOUS, ProcessRank


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be stopped")
def test_a_process_that_is_stopped_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops itself, as a debugger or a suspended machine would: of one pair rank 0 in the middle of an evaluation,
    say, which is its work alone, and of another rank 1 in a step, where all wait for its numbers.
    """

    def work(stopped: int) -> None:
        os.environ[RENDEZVOUS] = str(tmp_path / f"meeting-{stopped}")
        with joined(300) as group:
            impatient = TorchGroup(group.process, timedelta(seconds=1))
            try:
                with impatient.independently() if stopped == 0 else nullcontext():
                    if group.rank == stopped:
                        os.kill(os.getpid(), signal.SIGSTOP)
                impatient.all_gather(1)
            except ProcessLost as lost:
                (tmp_path / f"lost-{stopped}").write_text(lost.message)
                os._exit(0)

    monkeypatch.setattr(torch_group, "DIAGNOSIS", timedelta(seconds=2))
    pairs = [[forked(rank, 2, partial(work, stopped)) for rank in range(2)] for stopped in range(2)]
    try:
        for stopped, pair in enumerate(pairs):
            os.waitpid(pair[1 - stopped], 0)
            assert (tmp_path / f"meeting-{stopped}{JOINED}").exists()
            lost = (tmp_path / f"lost-{stopped}").read_text()
            assert lost == f"rank {stopped} did not answer for 1 seconds (runtime.timeout)"
    finally:
        for stopped, pair in enumerate(pairs):
            os.kill(pair[stopped], signal.SIGKILL)
            os.waitpid(pair[stopped], 0)


@pytest.mark.parametrize(("timeout", "interval"), [(600, 1.0), (2, 0.5)])
def test_a_process_that_works_alone_answers_often_enough(
    timeout: float, interval: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = TorchGroup.__new__(TorchGroup)
    group._timeout = timedelta(seconds=timeout)
    intervals = list[float]()
    monkeypatch.setattr(torch_group, "heartbeat", lambda tell, seconds: intervals.append(seconds) or nullcontext())
    with group.independently():
        assert intervals == [interval]


class Beats:
    """What two processes tell each other, as threads of this one."""

    def __init__(self) -> None:
        self.meeting, self.states, self.n = threading.Barrier(2, timeout=60), [0, 0], 0
        self.enough = threading.Event()

    def of(self, rank: int) -> Callable[[int], int]:
        def tell(state: int) -> int:
            self.states[rank] = state
            self.meeting.wait()
            found = max(self.states)
            self.n += rank == 0
            if self.n == 5:
                self.enough.set()
            self.meeting.wait()
            return found

        return tell


def both(first: Callable[[], None], second: Callable[[], None]) -> list[str]:
    """What two processes that work independently, as threads, raise."""
    beats, raised = Beats(), ["", ""]

    def of(rank: int, work: Callable[[], None]) -> None:
        try:
            with heartbeat(beats.of(rank), 0.0):
                assert beats.enough.wait(60)
                work()
        except Exception as error:
            raised[rank] = str(error)

    threads = [threading.Thread(target=of, args=(rank, work)) for rank, work in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def fail() -> None:
    raise DataFault("bad")


def test_all_wait_until_the_last_one_is_done() -> None:
    done, waiting = list[str](), threading.Event()

    def slow() -> None:
        assert waiting.wait(60)
        done.append("slow")

    beats = Beats()

    def of_slow() -> None:
        with heartbeat(beats.of(0), 0.0):
            slow()

    thread = threading.Thread(target=of_slow)
    thread.start()
    with heartbeat(beats.of(1), 0.0):
        waiting.set()
    done.append("quick")
    thread.join()
    assert done == ["slow", "quick"]


def test_an_error_ends_the_waiting_of_all() -> None:
    assert both(lambda: None, lambda: None) == ["", ""]
    assert both(fail, lambda: None) == ["bad", "another process of the run failed"]
    assert both(fail, fail) == ["bad", "bad"]  # as where all agree on stopping, and go on


def test_a_failure_is_heard_while_others_still_work() -> None:
    states = iter([[WORKING, WORKING], [WORKING, FAILED]])

    def tell(state: int) -> int:
        others = next(states, None)
        if others is None:
            raise ProcessLost("the failure was not heard")
        return max(state, *others)

    with pytest.raises(ProcessLost, match="another process of the run failed"), heartbeat(tell, 0.0):
        pass


def test_a_process_that_is_done_does_not_wait_for_its_next_sign_of_life() -> None:
    told = list[int]()

    def work() -> None:
        with heartbeat(lambda state: told.append(state) or state, 600.0):
            while not told:
                time.sleep(0.01)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert told == [WORKING, DONE]


def test_a_process_that_lost_another_says_so_when_it_is_done() -> None:
    def lost(state: int) -> int:
        raise ProcessLost("rank 1 is gone")

    done = []
    with pytest.raises(ProcessLost, match="rank 1"), heartbeat(lost, 0.0):
        done.append("work")
    assert done == ["work"]


def test_processes_that_do_not_come_are_named(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "store"), 4)
    store.set("minitf/rank-2", "here")
    with pytest.raises(
        Unavailable, match=r"^ranks 0, 3 of 4 processes did not come within 0.1 seconds \(runtime.timeout\)$"
    ):
        meet(store, ProcessRank(1, 4), timedelta(seconds=0.1))
    for rank in (0, 3):
        store.set(f"minitf/rank-{rank}", "here")
    meet(store, ProcessRank(1, 4), timedelta(seconds=0.1))


def test_of_very_many_processes_that_do_not_come_eight_are_named() -> None:
    store = HashStore()  # a FileStore waits for a second at least
    for size, missing in (
        (9, "ranks 1, 2, 3, 4, 5, 6, 7, 8 of 9"),
        (12, "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3 more of 12"),
    ):
        with pytest.raises(Unavailable, match=f"^{missing} processes did not come"):
            meet(store, ProcessRank(0, size), timedelta(seconds=0.01))


def test_rank_0_says_that_all_are_connected_and_all_wait_for_the_last_one(tmp_path: Path) -> None:
    def work(group: ProcessGroup) -> list[Any]:
        joined = Path(os.environ[RENDEZVOUS] + JOINED)
        group.barrier()
        owner = joined.read_text() if joined.exists() else None
        if group.is_rank_0:
            time.sleep(0.3)  # the others leave the block before it
            (tmp_path / "late").touch()
        return [owner, (tmp_path / "late").exists()]

    def run(rank: int, meeting: Path) -> list[Any]:
        os.environ[RENDEZVOUS] = str(meeting / "group")
        with joined(300) as group:
            found = work(group)
        return [*found, (tmp_path / "late").exists()]

    assert everywhere(2, run, tmp_path) == [["", True, True], ["", False, True]]
