"""The prompt loop, in a real pseudo-terminal: it asks, streams its answer, can be interrupted, and leaves politely."""

import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT, minitf, trained

PATIENCE = 60.0
"""Seconds until something that should be printed counts as never printed."""


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "decoder", "train.steps=20")


class Terminal:
    """`minitf generate` with somebody at its terminal; stdout may go elsewhere."""

    def __init__(self, *arguments: str | Path, **streams: Any) -> None:
        self.here, there = pty.openpty()
        command = [sys.executable, "-m", "mini_tf", "generate", *map(str, arguments)]
        environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT)}
        standard = {"stdin": there, "stdout": there, "stderr": there, **streams}
        # The terminal becomes the controlling one, so that Ctrl-C reaches the process as a signal.
        takes_it = f"import fcntl, os, sys, termios; fcntl.ioctl({there}, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
        wrapped = [sys.executable, "-c", takes_it, *command]
        self.process = subprocess.Popen(wrapped, env=environment, start_new_session=True, pass_fds=(there,), **standard)
        os.close(there)
        self.seen = ""

    def type(self, text: str | bytes) -> None:
        os.write(self.here, text if isinstance(text, bytes) else text.encode())

    def wait_for(self, text: str, since: int = 0) -> str:
        """What stands on the screen, once it has `text` after its first `since` characters."""
        while text not in self.seen[since:]:
            assert self.read(), f"{text!r} never came: {self.seen!r}"
        return self.seen

    def read(self) -> bool:
        """Take over what is printed next; False at the end."""
        assert select.select([self.here], [], [], PATIENCE)[0], f"nothing came any more: {self.seen!r}"
        try:
            part = os.read(self.here, 4096).decode(errors="replace")
        except OSError:  # how Linux tells that nobody is left on the other side
            return False
        self.seen += re.sub("\x1b\\[[0-9;?]*[a-zA-Z]|\r", "", part)
        return part != ""

    def leave(self) -> int:
        """The exit code, once everything that was printed has been read."""
        while self.read():
            pass
        return self.process.wait(PATIENCE)


@pytest.fixture
def at_terminal() -> Iterator[Any]:
    opened: list[Terminal] = []

    def open_one(*arguments: str | Path, **streams: Any) -> Terminal:
        opened.append(Terminal(*arguments, **streams))
        return opened[-1]

    yield open_one
    for terminal in opened:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait()
        os.close(terminal.here)


def test_it_asks_answers_and_leaves_at_ctrl_d(decoder: Path, at_terminal: Any) -> None:
    """An empty line is asked again; what is no text is told, and the loop goes on."""
    options = ("--greedy", "--max-new-tokens", "20", "--stop", r"\n")
    answers = [minitf("generate", decoder, prompt, *options).stdout for prompt in ("Once", "The")]
    terminal = at_terminal(decoder, *options)
    terminal.wait_for("> ")
    terminal.type("Once\n")
    terminal.wait_for(f"> Once\n{answers[0]}> ")
    terminal.type("\n")
    terminal.wait_for(f"{answers[0]}> \n> ")
    terminal.type(b"\xff\n")
    told = terminal.wait_for("the prompt is not UTF-8")
    terminal.wait_for("\n> ", since=told.index("not UTF-8"))
    terminal.type("The\n")
    terminal.wait_for(f"> The\n{answers[1]}> ")
    terminal.type("\x04")
    assert terminal.leave() == 0
    assert terminal.seen.endswith("> \n")


def test_ctrl_c_ends_an_answer_and_at_the_prompt_the_loop(decoder: Path, at_terminal: Any) -> None:
    terminal = at_terminal(decoder, "--max-new-tokens", "1000000", "--stop", "never written")
    terminal.wait_for("> ")
    terminal.type("Once\n")
    terminal.wait_for("> Once\n")
    asked = len(terminal.seen)
    while len(terminal.seen) < asked + 10:  # the answer has begun to stream, and would go on for hours
        terminal.read()
    terminal.type("\x03")
    terminal.wait_for("\n> ", asked)
    assert terminal.process.poll() is None
    # Python's input() may miss a signal that comes while it is just beginning to wait, so it is sent until it is noticed.
    for _ in range(100):
        terminal.type("\x03")
        if select.select([terminal.here], [], [], 0.2)[0]:
            break
    assert terminal.leave() == 130
    assert terminal.seen.endswith("interrupted\n")
    assert "Traceback" not in terminal.seen


def test_with_stdout_elsewhere_the_prompt_still_stands_on_the_terminal(decoder: Path, at_terminal: Any, tmp_path: Path) -> None:
    options = ("--greedy", "--max-new-tokens", "20")
    with open(tmp_path / "out.txt", "wb") as out:
        terminal = at_terminal(decoder, *options, stdout=out)
        terminal.wait_for("> ")
        terminal.type("Once\n")
        terminal.wait_for("> ", since=terminal.wait_for("Once").index("Once"))
        terminal.type("\x04")
        assert terminal.leave() == 0
    assert (tmp_path / "out.txt").read_text() == minitf("generate", decoder, "Once", *options).stdout
