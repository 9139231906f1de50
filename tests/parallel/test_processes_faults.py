"""What a launcher says when a process ends early, and what several processes refuse."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from commands import minitf
from hang import ending
from rich.text import Text
from threads import in_threads

from mini_tf.cli.terminal import processes
from mini_tf.cli.terminal.processes import worker_console
from mini_tf.data.tokenization.prompts import InputWarnings
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.jobs.session import Session
from mini_tf.parallel import launching, reduction, torch_group
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.launching import _End, _Workers
from mini_tf.parallel.reduction import REDUCTIONS
from mini_tf.parallel.torch_group import TorchGroup, joined
from mini_tf.recipe.sections import Tokenizer as Settings
from mini_tf.system.errors import DataFault, MinitfError, ProcessLost, Unavailable, UsageFault
from mini_tf.system.processes import (
    FAULTS,
    JOINED,
    LAUNCHER,
    ProcessRank,
    WorkerFault,
    is_worker,
    process_rank,
    read_fault,
    torchrun_ended,
    write_fault,
)
from mini_tf.system.safe_files import temporary_path
from mini_tf.training.signals import StopRequest

start = subprocess.Popen


def set_variables(patch: pytest.MonkeyPatch, **variables: object) -> None:
    for name, value in variables.items():
        patch.setenv(name, str(value))


ENDED = "the launcher of the processes ended; the same command continues from the last checkpoint"


def test_a_tree_refuses_processes_whose_partners_do_not_exist() -> None:
    for n in (1, 2, 4, 8, 64):
        REDUCTIONS["tree"].refuse(ProcessGroup(ProcessRank(0, n)))
    with pytest.raises(UsageFault, match="not 6") as refusal:
        REDUCTIONS["tree"].refuse(ProcessGroup(ProcessRank(0, 6)))
    assert refusal.value.hint == "start 4 or 8 processes, or runtime.reduce=sum"
    REDUCTIONS["sum"].refuse(ProcessGroup(ProcessRank(0, 3)))


def test_a_rank_that_is_no_number_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch, RANK="x", WORLD_SIZE=2)
    done = minitf("evaluate", "last")
    assert done.exit_code == 2
    assert done.stderr.startswith("RANK=x, WORLD_SIZE=2")
    assert done.stderr.count("\n") == 1
    assert minitf("runs", "list").exit_code == 0  # it does not work in several processes, whatever a batch system sets


def test_exit_code_and_json_of_a_process_with_an_error_reach_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_variables(monkeypatch, RANK=1, WORLD_SIZE=2, **{FAULTS: tmp_path})
    console = worker_console(command="pretrain", json=True)
    console.output(run=Path("a"), metrics={"val.loss": 1.5})
    console.close(130, MinitfError("interrupted"))
    fault = read_fault(tmp_path, 1)
    assert fault is not None
    assert fault.exit_code == 130
    assert fault.output == {"run": "a", "metrics": {"val.loss": 1.5}, "result": None}


def test_a_process_that_starts_after_a_stop_signal_gets_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda command, **given: start(["sleep", "600"], start_new_session=True))
    launched = _Workers(tmp_path)
    launched.start(0, 2, [], False)
    launched.asked = signal.SIGTERM  # before the launcher knows of rank 1
    launched.signal(signal.SIGTERM)
    launched.start(1, 2, [], False)
    launched.wait(lambda running: None)
    assert {end.rank: end.code for end in launched.ends} == {0: -signal.SIGTERM, 1: -signal.SIGTERM}
    assert launched.exit_code() == 143


@pytest.mark.skipif(sys.platform != "linux", reason="only /proc tells that a process is stopped")
def test_a_stopped_process_does_not_get_the_last_grace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "GRACE", 0.0)
    monkeypatch.setattr(launching, "LAST_GRACE", math.inf)
    stopped = start(["sleep", "600"])
    stopped.send_signal(signal.SIGSTOP)
    while not launching._is_stopped(stopped.pid):
        time.sleep(0.01)
    launched = _Workers(tmp_path, running={1: stopped}, ends=[_End(0, 9, False)])
    with ending(60):
        launched.wait(lambda running: None)
    assert launched.ends[-1] == _End(1, -signal.SIGKILL, True)
    assert not launching._is_stopped(stopped.pid)  # there is no such process


@pytest.mark.parametrize(
    ("end", "joined", "last_grace", "signal_of_others"),
    [
        pytest.param(-signal.SIGKILL, False, 60, signal.SIGTERM, id="killed-while-it-started"),
        pytest.param(-signal.SIGKILL, True, 0.1, signal.SIGKILL, id="killed-later"),
        pytest.param(3, False, 0.1, signal.SIGKILL, id="an-error"),
    ],
)
def test_processes_that_wait_for_one_that_was_killed_before_it_joined_get_no_grace(
    end: int,
    joined: bool,
    last_grace: float,
    signal_of_others: signal.Signals,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others have time to notice it: here for ever, up to the last grace."""
    monkeypatch.setattr(launching, "GRACE", math.inf)
    monkeypatch.setattr(launching, "LAST_GRACE", last_grace)
    if joined:
        (tmp_path / f"rendezvous{JOINED}").touch()
    launched = _Workers(tmp_path, running={0: start(["sleep", "600"])}, ends=[_End(1, end, False)])
    launched.wait(lambda running: None)
    assert launched.ends[-1] == _End(0, -signal_of_others, signal_of_others == signal.SIGTERM)


def test_a_collective_that_fails_says_that_another_process_is_gone_and_other_errors_pass() -> None:
    group = TorchGroup.__new__(TorchGroup)
    peer = "Connection closed by peer [127.0.0.1]:1"
    advice = "This is typically caused by a remote worker crashing. Check its logs.\nframe #0"
    with pytest.raises(ProcessLost) as lost, group.communication():
        raise RuntimeError(f"[/w/gloo/transport/tcp/pair.cc:553] {peer}. {advice}")
    assert lost.value.message == f"another process of the run ended: {peer}"
    with pytest.raises(ProcessLost), group.communication():
        raise torch.distributed.DistBackendError("NCCL error")
    with pytest.raises(RuntimeError, match="shape"), group.communication():
        raise RuntimeError("shape mismatch")


def test_a_process_that_loses_another_while_it_prepares_overlap_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(task: torch.nn.Module) -> None:
        raise RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1")

    group = TorchGroup.__new__(TorchGroup)
    ProcessGroup.__init__(group, ProcessRank(0, 2))
    monkeypatch.setattr(reduction, "summing_ddp", lose)
    with pytest.raises(ProcessLost, match="Connection closed by peer"):
        REDUCTIONS["overlap"]([], group).forward(torch.nn.Linear(1, 1))


def test_all_processes_count_what_was_cut_or_unknown_in_all_texts() -> None:
    tokenizer = Tokenizer.train(Settings(kind="char"), ["a long text"])

    def work(group: ProcessGroup, longer: int) -> list[str]:
        unread = InputWarnings(tokenizer, 8)
        for n in range(2):
            cut = 3 if group.rank < longer and n == 0 else 0
            unread.add(["a", f"t{'xyz'[group.rank] * 2}\u00e9"], 11, cut, f"texts.txt:{2 * group.rank + n}")
        unread.join(group)
        return unread.notes()

    notes = [
        "2 of 6 prompts are longer than the context of 8 tokens; their first tokens are truncated",
        "the tokenizer has no token for '\u00e9', 'y', 'z' (14 in all); the unknown token replaces them",
    ]
    assert in_threads(3, lambda group: work(group, 2)) == [notes] * 3
    assert (
        in_threads(3, lambda group: work(group, 1))[0][0]
        == "texts.txt:0: the prompt has 11 tokens; the first 3 are truncated"
    )


def test_all_processes_count_which_of_all_texts_grew_or_have_masks() -> None:
    tokenizer = Tokenizer.train(Settings(kind="byte"), ["a long text"])

    def notes(group: ProcessGroup) -> list[str]:
        own = InputWarnings(tokenizer, 8)
        if group.is_rank_0:
            own.add(["short"], 5)
            own.add_grown(1)
        else:
            own.add(["a long text", "[MASK]"], 11, 3, "texts.txt:2")
            own.add_grown(2)
        own.join(group)
        return own.notes()

    cut = "texts.txt:2: the prompt has 11 tokens; the first 3 are truncated"
    mask = "[MASK] is plain text here: a mask only in a prompt to an encoder, or to a model that fills masks"
    grown = "texts grew longer than the context of 8 tokens; from there on the model saw only the last half of it"
    assert in_threads(2, notes) == [[cut, mask, f"3 {grown}"]] * 2


def test_a_signal_that_comes_after_the_processes_agreed_waits_for_the_next_time() -> None:
    stop = StopRequest()

    class Late(ProcessGroup):
        def all_gather(self, value: Any) -> list[Any]:
            stop.request(signal.SIGTERM)  # which the others have not heard of
            return [value, 0]

    session: Any = SimpleNamespace(group=Late())
    assert not Session.agree(session, stop)
    assert Session.agree(session, stop)


@pytest.fixture
def ended_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the launcher of two processes that is gone before they have done anything."""
    folder = tmp_path / "launched"
    folder.mkdir()
    gone = {LAUNCHER: os.getppid() + 1, FAULTS: folder}
    set_variables(monkeypatch, RANK=2, WORLD_SIZE=4, LOCAL_RANK=0, LOCAL_WORLD_SIZE=2, **gone)
    return folder


@pytest.mark.parametrize("torchrun", [False, True])
@pytest.mark.parametrize(("local_rank", "lines"), [("0", [ENDED]), ("1", [])])
def test_a_process_whose_launcher_ends_ends_with_one_line_a_machine(
    local_rank: str,
    lines: list[str],
    torchrun: bool,
    ended_launcher: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever it does, in a library of C too; rank 2 is the first one of its machine."""
    codes, exited = list[int](), threading.Event()
    monkeypatch.setattr(os, "_exit", lambda code: codes.append(code) or exited.set())
    monkeypatch.setattr(processes, "WATCH", 0.01)
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        if torchrun:
            address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": closed.getsockname()[1], LAUNCHER: os.getppid()}
            set_variables(monkeypatch, TORCHELASTIC_USE_AGENT_STORE=True, **address)
        worker_console(command="pretrain", json=True)
        assert exited.wait(60)
    assert codes == [9]
    out, err = capsys.readouterr()
    assert err.splitlines() == lines
    assert out == ""
    assert not ended_launcher.exists()


def test_a_process_that_trains_gets_sigterm_when_its_launcher_ends(
    ended_launcher: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes, "WATCH", 0.01)
    with StopRequest() as stop:
        console = worker_console(command="pretrain")
        for _ in range(6000):
            time.sleep(0.01)
            if stop:
                break
    assert stop.exit_code == 143
    console.close(stop.exit_code)
    assert capsys.readouterr().err == ""
    assert not ended_launcher.exists()


@pytest.mark.parametrize(
    ("error", "line"), [(ProcessLost("another process ended"), ENDED), (DataFault("bad text"), "bad text")]
)
def test_an_error_after_the_launcher_has_ended_is_printed(
    error: MinitfError, line: str, ended_launcher: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No one reads it from a file; a lost process is lost for the same reason."""
    worker_console(command="pretrain").close(error.exit_code, error)
    assert capsys.readouterr().err.splitlines() == [line]


def test_a_launcher_that_lives_is_left_to_print_the_error(
    ended_launcher: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes, "WATCH", 0.01)
    monkeypatch.setenv(LAUNCHER, str(os.getppid()))
    for error, lost in (
        (DataFault("bad text"), False),
        (Unavailable("no GPU"), False),
        (ProcessLost("another is gone"), True),
    ):
        console = worker_console(command="pretrain")
        time.sleep(0.1)
        console.close(error.exit_code, error)
        assert capsys.readouterr().err == ""
        fault = read_fault(ended_launcher, 2)
        assert fault is not None
        assert (fault.exit_code, fault.message, fault.lost) == (error.exit_code, error.message, lost)


def test_torchrun_has_ended_where_its_store_accepts_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maybe before the process looked who its parent is."""
    assert not torchrun_ended()  # it was not started by it
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        set_variables(monkeypatch, MASTER_ADDR="127.0.0.1", MASTER_PORT=listening.getsockname()[1])
        assert not torchrun_ended()  # of a batch system, whose rank 0 has the store
        monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
        assert torchrun_ended()
        listening.listen()
        assert not torchrun_ended()
    monkeypatch.setenv("MASTER_PORT", "none")
    assert not torchrun_ended()


def test_a_rank_0_whose_store_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a batch system starts them, on another machine maybe."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        set_variables(monkeypatch, MASTER_ADDR="127.0.0.1", MASTER_PORT=closed.getsockname()[1], RANK=1, WORLD_SIZE=2)
        with (
            pytest.raises(
                Unavailable, match=r"^rank 0 of 2 processes did not come within 0.2 seconds \(runtime.timeout\)$"
            ),
            joined(0.2),
        ):
            pass


def test_a_process_waits_for_a_store_that_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        set_variables(monkeypatch, MASTER_ADDR="127.0.0.1", MASTER_PORT=listening.getsockname()[1])
        later = threading.Timer(0.3, listening.listen)
        later.start()
        torch_group._reach_store(ProcessRank(1, 2), 60)
        later.join()
    monkeypatch.delenv("MASTER_PORT")
    torch_group._reach_store(ProcessRank(1, 2), 60)  # torch says that it is not set


def test_a_rank_0_that_has_the_store_waits_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    set_variables(monkeypatch, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=0, WORLD_SIZE=2)
    with (
        pytest.raises(Unavailable, match=r"^rank 0 of 2 processes cannot reach the others: .*1/2 clients joined"),
        joined(0.3),
    ):
        pass


@pytest.mark.parametrize(
    ("variables", "here"),
    [
        ({}, ProcessRank()),
        ({"RANK": "0", "WORLD_SIZE": "1"}, ProcessRank()),
        ({"RANK": "0"}, ProcessRank()),
        ({"RANK": "1", "WORLD_SIZE": "2"}, ProcessRank(1, 2, 1, 2)),
        ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, ProcessRank(5, 8, 1, 4)),
        ({"RANK": "2", "WORLD_SIZE": "2"}, None),
        ({"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, None),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, None),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "1"}, None),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "-1", "LOCAL_WORLD_SIZE": "1"}, None),
    ],
)
def test_a_rank_is_that_of_the_launcher_and_must_exist(
    variables: dict[str, str], here: ProcessRank | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None: it is refused."""
    set_variables(monkeypatch, **variables)
    assert is_worker() == (here != ProcessRank())
    if here is not None:
        assert process_rank() == here
        return
    with pytest.raises(
        UsageFault, match=f"RANK={variables['RANK']}, WORLD_SIZE=2, .*: a rank must be below the number of processes"
    ):
        process_rank()


@pytest.mark.parametrize(
    ("messages", "line"), [(("bad", "bad"), "bad"), (("bad", "worse"), "bad"), ((None, "worse"), "rank 1: worse")]
)
def test_the_error_of_the_process_that_failed_first_is_told_once(
    messages: tuple[str | None, str], line: str, tmp_path: Path
) -> None:
    """With its exit code; one that all have is not that of a rank."""
    for rank, message in enumerate(messages):
        error = ProcessLost("rank 1 is gone") if message is None else DataFault(message, hint="mend it")
        write_fault(tmp_path, rank, error, exit_code=error.exit_code, lost=message is None, output={})
    with pytest.raises(WorkerFault) as caught:
        _Workers(tmp_path, ends=[_End(rank, 4, False) for rank in range(2)]).exit_code()
    assert (caught.value.message, caught.value.exit_code) == (line, 4)
    assert caught.value.hint == "mend it"


def test_a_launcher_removes_what_a_killed_one_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", lambda command, **given: start(["true"]))
    killed = start(["true"])
    killed.wait()
    left = temporary_path(tmp_path / "minitf")
    left = left.with_name(left.name.replace(f".{os.getpid()}.", f".{killed.pid}."))
    left.mkdir()
    (left / "rank-0.json").touch()
    seen = list[list[tuple[str, int]]]()
    look = lambda running: seen.append([(path.name, path.stat().st_mode & 0o777) for path in tmp_path.iterdir()])  # noqa: E731
    assert launching.launch(1, [], watch=look) == 0
    [(name, mode)] = seen[0]
    assert name != left.name
    assert mode == 0o700  # no other user reads the errors, or changes where processes meet
    assert [*tmp_path.iterdir()] == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("quiet", [False, True])
def test_each_process_knows_its_place_and_rank_0_alone_has_the_terminal(
    quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each leads a session, so that Ctrl-C in a terminal reaches it through the launcher only."""
    places = "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $(dirname $MINITF_RENDEZVOUS)"
    session = "$MINITF_LAUNCHER $(cut -d' ' -f6 /proc/$$/stat) $$"
    streams = "".join(f"stream=$(readlink /proc/$$/fd/{n}); echo $stream >> {tmp_path}/$RANK\n" for n in range(2))
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\necho "{places} {session} $*" > {tmp_path}/$RANK\n{streams}')
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own_stdin = os.dup(0)
    with (tmp_path / "typed").open("w+") as typed:
        os.dup2(typed.fileno(), 0)
        assert launching.launch(3, ["pretrain", "a"], quiet) == 0
        terminal = [os.readlink(f"/proc/self/fd/{n}") for n in range(2)]
        os.dup2(own_stdin, 0)
    os.close(own_stdin)
    for rank in range(3):
        line, *links = (tmp_path / str(rank)).read_text().splitlines()
        number, size, local, local_size, folder, launcher, leader, process, *arguments = line.split()
        assert [number, size, local, local_size] == [str(rank), "3", str(rank), "3"]
        assert Path(folder).parent == tmp_path
        assert (launcher, leader) == (str(os.getpid()), process)
        assert arguments == ["-m", "mini_tf", "pretrain", "a"]
        assert links == [
            terminal[0] if rank == 0 else "/dev/null",
            terminal[1] if rank == 0 and not quiet else "/dev/null",
        ]


@pytest.mark.parametrize(
    ("ends", "asked", "raised"),
    [
        ([(0, 0), (1, 0)], 0, 0),
        ([(0, 8), (1, 0)], 0, 8),
        ([(1, -15), (0, -15)], 15, 143),  # a stop signal, before they could catch it
        ([(1, -15), (0, 9)], 2, "rank 1 was killed by signal 15 (SIGTERM)"),
        ([(1, -15), (0, -15)], 0, "rank 1 was killed by signal 15 (SIGTERM)"),
        ([(1, -9), (0, 9)], 0, "rank 1 was killed by signal 9 (SIGKILL)"),
        ([(1, -signal.SIGRTMIN - 3)], 0, f"rank 1 was killed by signal {signal.SIGRTMIN + 3} (SIGRTMIN+3)"),
        ([(1, -15, True), (0, 9)], 0, 9),  # the launcher's own signal
    ],
)
def test_the_exit_code_is_that_of_the_process_that_failed(
    ends: list[Any], asked: int, raised: int | str, tmp_path: Path
) -> None:
    launched = _Workers(tmp_path, ends=[_End(rank, code, bool(ours)) for rank, code, *ours in ends], asked=asked)
    if isinstance(raised, int):
        assert launched.exit_code() == raised
        return
    with pytest.raises(Unavailable) as caught:
        launched.exit_code()
    assert caught.value.message == raised


def test_a_lost_process_is_told_only_if_no_one_knows_why(tmp_path: Path) -> None:
    """That of the lowest rank; what a killed process left behind says less than that it was killed."""
    for rank in (1, 2):
        lost = ProcessLost(f"rank {rank} lost another")
        write_fault(tmp_path, rank, lost, exit_code=9, lost=True, output={"run": rank})
    with pytest.raises(WorkerFault) as caught:
        _Workers(tmp_path, ends=[_End(2, 9, False), _End(1, 9, False)]).exit_code()
    assert (caught.value.message, caught.value.output) == ("rank 1 lost another", {"run": 1})
    with pytest.raises(Unavailable, match="rank 0 was killed by signal 9"):
        _Workers(tmp_path, ends=[_End(0, -9, False), _End(2, 9, False), _End(1, 9, False)]).exit_code()


def test_the_first_stop_signal_reaches_all_and_handlers_are_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is ignored, as under nohup, stays so."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    handlers = {number: signal.getsignal(number) for number in launching._FORWARDED}
    monkeypatch.setattr(subprocess, "Popen", lambda command, **given: start(["sleep", "600"], start_new_session=True))
    sent = [signal.SIGHUP, signal.SIGTERM, signal.SIGINT]

    def watch(running: Any) -> None:
        if sent:
            signal.raise_signal(sent.pop(0))

    try:
        assert launching.launch(2, [], watch=watch) == 143
        assert {number: signal.getsignal(number) for number in launching._FORWARDED} == handlers
    finally:
        signal.signal(signal.SIGHUP, before)


def test_no_process_is_left_where_the_launcher_has_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[Any]()
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **given: started.append(start(["sleep", "600"])) or started[-1]
    )

    def watch(running: Any) -> None:
        raise DataFault("bad")

    with pytest.raises(DataFault):
        launching.launch(2, [], watch=watch)
    assert [one.returncode for one in started] == [-signal.SIGKILL] * 2


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_alone_prints_and_others_print_their_errors(
    rank: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Started by torchrun, which has no place for an error."""
    set_variables(monkeypatch, RANK=rank, WORLD_SIZE=2)
    console = worker_console(command="predict", json=True)
    console.say("a line")
    console.warn("a doubt")
    console.emit_json(result=[1])
    console.print_output("text")
    console.json = False
    console.show(lambda width, colored: Text("a picture"))
    console.json = True
    console.close(4, DataFault("bad text", hint="mend it"))
    out, err = capsys.readouterr()
    if rank:
        assert (out, err) == ("", "rank 1: bad text; mend it\n")
        return
    assert err.splitlines() == ["a line", "warning: a doubt", "bad text; mend it"]
    lines = out.splitlines()
    assert [json.loads(line)["ok"] for line in (lines[0], lines[-1])] == [True, False]
    assert [line.strip() for line in lines[1:-1]] == ["text", "a picture"]


def test_a_fault_of_another_rank_keeps_all_but_a_single_line_of_faults(tmp_path: Path) -> None:
    for rank, faults in enumerate((["one"], ["one", "two"])):
        error = DataFault("one", hint="mend it", where=["a.txt:3"], faults=faults)
        write_fault(tmp_path, rank, error, exit_code=4, lost=False, output={"metrics": {"a": 1}})
    single, several = (read_fault(tmp_path, rank).of(f"rank {rank}") for rank in range(2))  # type: ignore[union-attr]
    assert single.faults == ("rank 0: one",)
    assert several.faults == ("one", "two")
    for fault in (single, several):
        assert (fault.hint, fault.where, fault.exit_code) == ("mend it", ("a.txt:3",), 4)
        assert fault.output == {"metrics": {"a": 1}}
    assert read_fault(tmp_path, 2) is None


@pytest.mark.parametrize(
    ("variables", "level"),
    [
        ({}, None),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "FATAL"),
        ({"RANK": "0", "WORLD_SIZE": "2", "TORCH_CPP_LOG_LEVEL": "INFO"}, "INFO"),
    ],
)
def test_torch_prints_no_stack_of_its_own_in_one_of_several_processes(
    variables: dict[str, str], level: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the variable when it is imported. Who asks for more gets it."""
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "")
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL")
    set_variables(monkeypatch, **variables)
    assert minitf("--version").exit_code == 0
    assert os.environ.get("TORCH_CPP_LOG_LEVEL") == level
