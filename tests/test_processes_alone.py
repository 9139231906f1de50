"""While one process works by itself the others wait, as long as it answers."""

import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from processes import forked
from torch.distributed import FileStore

from mini_tf.distributed.heartbeat import beating
from mini_tf.distributed.joining import joined, meet
from mini_tf.distributed.torch_group import TorchGroup
from mini_tf.system.errors import DataFault, ProcessLost, Unavailable
from mini_tf.system.processes import RENDEZVOUS, Place


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be stopped")
def test_a_rank_0_that_is_stopped_while_it_works_alone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops itself, as a debugger or a suspended machine would, in the middle of an evaluation, say."""

    def work() -> None:
        with joined(300) as group:
            impatient = TorchGroup(group.place, timedelta(seconds=1))
            try:
                impatient.share(lambda: os.kill(os.getpid(), signal.SIGSTOP))
            except ProcessLost as lost:
                (tmp_path / f"rank-{group.rank}").write_text(lost.message)
                os._exit(0)

    monkeypatch.setenv(RENDEZVOUS, str(tmp_path / "meeting"))
    ranks = [forked(rank, 2, work) for rank in range(2)]
    try:
        os.waitpid(ranks[1], 0)
        assert (tmp_path / "rank-1").read_text() == "rank 0 did not answer for 1 seconds (runtime.timeout)"
    finally:
        os.kill(ranks[0], signal.SIGKILL)
        os.waitpid(ranks[0], 0)


class Beats:
    """What two processes tell each other, as threads of this one."""

    def __init__(self) -> None:
        self.meeting, self.flags = threading.Barrier(2, timeout=60), [False, False]
        self.n = 0
        self.enough = threading.Event()

    def of(self, rank: int) -> Callable[[bool], bool]:
        def any_works(flag: bool) -> bool:
            self.flags[rank] = flag
            self.meeting.wait()
            found = any(self.flags)
            self.n += rank == 0
            if self.n == 5:
                self.enough.set()
            self.meeting.wait()
            return found

        return any_works


def test_the_others_wait_until_all_are_done_however_long_one_works() -> None:
    beats, done = Beats(), list[str]()

    def worker() -> None:
        with beating(beats.of(0), 0.0):
            assert beats.enough.wait(60)
            done.append("worker")

    thread = threading.Thread(target=worker)
    thread.start()
    with beating(beats.of(1), 0.0):
        pass
    done.append("waiting")
    thread.join()
    assert done == ["worker", "waiting"]


def test_a_process_that_fails_leaves_at_once_and_one_that_lost_another_says_so_when_it_is_done() -> None:
    with pytest.raises(DataFault, match="bad"), beating(lambda flag: True, 3600.0):
        raise DataFault("bad")

    def lost(flag: bool) -> bool:
        raise ProcessLost("rank 1 is gone")

    done = []
    with pytest.raises(ProcessLost, match="rank 1"), beating(lost, 0.0):
        done.append("work")
    assert done == ["work"]


def test_processes_that_do_not_come_are_named(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "store"), 4)
    store.set("minitf/rank-2", "here")
    with pytest.raises(Unavailable, match=r"^ranks 0, 3 of 4 processes did not come within 0.1 seconds \(runtime.timeout\)$"):
        meet(store, Place(1, 4), timedelta(seconds=0.1))
    for rank in (0, 3):
        store.set(f"minitf/rank-{rank}", "here")
    meet(store, Place(1, 4), timedelta(seconds=0.1))
