"""What a person waits for is said: after a second, with a share where it is known, in place on a live terminal, and
Ctrl-C is answered.
"""

import io
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import QUIET, TINY, minitf, trained
from data_of import dataset_of

from mini_tf.cli.terminal import console, loading, waits
from mini_tf.cli.terminal.waits import AGAIN, waits_of
from mini_tf.data.raw import RawData
from mini_tf.data.tokenization import guard
from mini_tf.data.tokenization.guard import interruptible_call
from mini_tf.recipe.data import Data
from mini_tf.system.progress import ProgressCallback, progress_display, show_progress
from mini_tf.training.training import EagerSteps


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("waits") / "run", "train.steps=1")


class Paper:
    """A display that keeps what it is told."""

    def __init__(self, live: bool) -> None:
        self.live, self.lines = live, list[str]()
        self.told = threading.Event()

    def say(self, line: str) -> None:
        assert not self.live
        self.lines.append(line)
        self.told.set()

    def status(self, line: str) -> None:
        assert self.live
        self.lines.append(line)
        self.told.set()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "DELAY", 0.0)


@pytest.mark.usefixtures("at_once")
def test_elsewhere_a_wait_is_a_line_and_then_one_now_and_then() -> None:
    paper, now = Paper(live=False), [100.0]
    with progress_display(waits_of(paper, lambda: now[0])), show_progress("encoding 7 characters") as reached:
        assert paper.told.wait(60)
        for passed, share in ((1.0, 0.2), (AGAIN, 0.34), (0.5, 0.4), (AGAIN, 1.0)):
            now[0] += passed
            reached(share)
    assert paper.lines == ["encoding 7 characters ...", "encoding 7 characters: 34%", "encoding 7 characters: 100%"]


@pytest.mark.usefixtures("at_once")
def test_a_share_that_is_reached_after_the_end_is_not_said() -> None:
    paper, now = Paper(live=False), [100.0]
    with progress_display(waits_of(paper, lambda: now[0])), show_progress("reading") as reached:
        assert paper.told.wait(60)
    now[0] += 2 * AGAIN
    reached(0.5)
    assert paper.lines == ["reading ..."]


@pytest.mark.parametrize("form", ["txt", "jsonl", "parquet"])
def test_the_shares_of_hashing_and_of_reading_rise_to_all(form: str, tmp_path: Path) -> None:
    """Of several files of any form; about the share of the text, also where the file is compressed."""
    rows = [{"text": f"document {n} " + "of many words " * 20} for n in range(2000)]
    for name in ("a", "b"):
        file = tmp_path / f"{name}.{form}"
        if form == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), file, use_dictionary=False)
        else:
            file.write_text(
                "".join((json.dumps(row) if form == "jsonl" else row["text"] + "\n") + "\n" for row in rows)
            )
    shares: dict[str, list[float]] = {}
    with progress_display(lambda operation: nullcontext(shares.setdefault(operation.split()[0], []).append)):
        raw = RawData(dataset_of("text"), Data(train=[str(tmp_path / f"{name}.{form}") for name in ("a", "b")]))  # type: ignore[arg-type]
        _ = raw.hash, raw.data_split
    for name in ("hashing", "reading"):
        assert shares[name] == sorted(shares[name])
        assert shares[name][-1] == pytest.approx(1)
    assert any(0.1 < share < 0.4 for share in shares["reading"])


@pytest.mark.usefixtures("at_once")
def test_a_live_terminal_shows_it_in_place_and_nothing_stays() -> None:
    paper, now = Paper(live=True), [100.0]
    with progress_display(waits_of(paper, lambda: now[0])), show_progress("reading") as reached:
        assert paper.told.wait(60)
        now[0] += 0.5
        reached(0.5)
    assert paper.lines == ["reading ...", "reading: 50%", ""]


def test_what_does_not_take_a_second_is_not_said() -> None:
    paper = Paper(live=False)
    with progress_display(waits_of(paper)), show_progress("reading") as reached:
        reached(0.5)
    assert paper.lines == []


@pytest.mark.usefixtures("at_once")
def test_a_wait_that_fails_is_over_too() -> None:
    paper = Paper(live=True)

    def work() -> None:
        with progress_display(waits_of(paper)), show_progress("reading"):
            assert paper.told.wait(60)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        work()
    assert paper.lines[-1] == ""


def test_reading_training_encoding_and_evaluating_are_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()

    @contextmanager
    def show(what: str) -> Iterator[ProgressCallback]:
        said.append(what)
        yield lambda share: said.append(f"{share:.0%}")

    monkeypatch.setattr(console, "waits_of", lambda display: show)
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    done = minitf("pretrain", TINY, *QUIET, "tokenizer.kind=bpe", "train.steps=2", "-d", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    expected = [
        *("loading PyTorch and the recipe", r"reading \d+\.\d MB"),
        *(r"training the tokenizer on \d+\.\d million characters", "collecting the labels"),
        *(r"encoding [\d,]+ characters", "100%", "the first step", r"evaluating [\d,]+ tokens", "0%"),
    ]
    rest = iter(said)
    for pattern in expected:
        assert any(re.fullmatch(pattern, line) for line in rest), (pattern, said)


@pytest.mark.parametrize(
    ("command", "waits"),
    [
        ("recipe check RUN", ["loading PyTorch and the recipe"]),
        ("data stats RUN", ["loading PyTorch and the recipe"]),
        ("generate RUN once --max-new-tokens 1", ["loading PyTorch and the model", "generating"]),
        ("generate RUN once --max-new-tokens 1 --stream", ["loading PyTorch and the model"]),
        ("evaluate RUN", ["loading PyTorch and the model", "evaluating 1,763 tokens"]),
        (
            "inspect positions RUN -o positions.png",
            ["loading PyTorch", "loading PyTorch and the model", "computing positions", "drawing positions.png"],
        ),
        ("export RUN -o folder", ["loading PyTorch", "writing the model and comparing its outputs"]),
        ("convert RUN model.attention.kind=window -d windows", ["loading PyTorch"]),
    ],
)
def test_each_command_says_what_takes_its_time_at_a_terminal_alone(
    command: str, waits: list[str], waiting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = list[str]()

    @contextmanager
    def show(what: str) -> Iterator[ProgressCallback]:
        said.append(what)
        yield lambda share: None

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "waits_of", lambda display: show)
    words = command.replace("RUN", str(waiting)).split()
    for terminal in (True, False) if words[0] in ("generate", "evaluate") else (True,):
        said.clear()
        monkeypatch.setattr(loading, "is_terminal", lambda stream, terminal=terminal: terminal)
        done = minitf(*words)
        assert done.exit_code == 0, done.stderr
        always = [line for line in waits if line.startswith("evaluating")]
        shown = [line for line in said if line.startswith(("loading", "generating", "computing", "drawing", "writing"))]
        assert shown == (waits[: len(waits) - len(always)] if terminal else [])
        assert {*always} <= {*said}


def test_a_line_on_stdout_ends_the_line_that_is_shown_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are on one terminal."""
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(console, "write_stderr", shown.write)
    terminal = console.Console()
    terminal.status("computing ...")
    terminal.print_output("text")
    terminal.print_output("more")
    assert shown.getvalue() == "\r\x1b[Kcomputing ...\r\x1b[Ktext\nmore\n"


def test_the_thread_of_such_work_has_ended_when_its_result_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork beside a living thread is an error."""

    class Lingering(Future[object]):
        def set_result(self, result: object) -> None:
            super().set_result(result)
            time.sleep(0.3)

    monkeypatch.setattr(guard, "Future", Lingering)
    before = threading.active_count()
    assert interruptible_call(lambda: 7) == 7
    assert threading.active_count() == before


def test_work_that_cannot_be_interrupted_is_left_at_once() -> None:
    assert interruptible_call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        interruptible_call(lambda: 1 // 0)
    code = """
import ctypes, sys, time
from mini_tf.data.tokenization.guard import interruptible_call
sleep = ctypes.CDLL(None).sleep  # C code: Python answers no signal before it returns
def work():
    print("at it", flush=True)
    for _ in range(600):
        sleep(1)
try:
    interruptible_call(work)
except KeyboardInterrupt:
    print("left", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "at it\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=300)[0] == "left\n"


def test_ctrl_c_is_answered_before_the_step_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line comes first, then the save."""
    gradients = EagerSteps.gradients

    def interrupted(step: EagerSteps, *given: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        sys.stderr.write("the step goes on\n")
        return gradients(step, *given)

    monkeypatch.setattr(EagerSteps, "gradients", interrupted)
    done = minitf("pretrain", TINY, *QUIET, "-d", tmp_path / "run")
    answer = "SIGINT: stopping after the current step or evaluation, then saving; Ctrl-C again"
    order = [
        n
        for start in (answer, "the step", "stopped at step 1, saved")
        for n, line in enumerate(done.stderr.splitlines())
        if line.startswith(start)
    ]
    assert len(order) == 3
    assert order == sorted(order)
    assert done.exit_code == 130


def test_a_line_arrives_though_backtraces_of_another_thread_are_sent_nowhere() -> None:
    code = """
import os, sys
from mini_tf.system.reporting import suppressed_stderr, write_stderr
with suppressed_stderr(), suppressed_stderr():
    os.write(2, b"panicked\\n")
    write_stderr("a line\\n")
write_stderr("another\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "a line\nanother\n"
