"""stdout is the product, stderr the conversation, the exit code the verdict; nothing foreign steers the terminal."""

import errno
import fcntl
import inspect
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import traceback
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.streams import wants_color
from mini_tf.drawing.panel import Panel, Scale
from mini_tf.drawing.terminal import heat_map
from mini_tf.system.errors import (
    DataFault,
    Diverged,
    GateMissed,
    MinitfError,
    RecipeFault,
    RunFault,
    StorageFault,
    Unavailable,
    UsageFault,
)
from mini_tf.system.safe_text import safe_text

ROOT = Path(__file__).parents[2]


def run_with(body: Any, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a one-command app around a body."""
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command("toy")(command(body))
    app.command("other")(lambda: None)
    result = CliRunner().invoke(app, ["toy", *arguments])
    return result.exit_code, result.stdout, result.stderr


def failing_with(error: BaseException) -> Any:
    def body(console: Console) -> None:
        raise error

    return body


def test_safe_text_lets_no_control_code_through() -> None:
    """Of all characters of two bytes, and all tags."""
    safe = {*safe_text("".join(map(chr, [*range(0x10000), *range(0xE0000, 0xE0200)])))}
    assert min(safe - {"\n", "\t"}) == " "
    assert not any(0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in safe)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc é 日本 🙂", "a\tb\nc é 日本 🙂"),
        ("\x1b]8;;http://x\x07", "\\x1b]8;;http://x\\x07"),
        ("50%\r100%", "50%\\x0d100%"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202etxt.exe\u2066", "\\u202etxt.exe\\u2066"),
        ("line\u2028end", "line\\u2028end"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_safe_text_shows_what_it_stops(text: str, shown: str) -> None:
    assert safe_text(text) == shown


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageFault("x"), 2),
        (RecipeFault("x"), 3),
        (DataFault("x"), 4),
        (RunFault("x"), 5),
        (StorageFault("x"), 6),
        (Diverged("x"), 7),
        (GateMissed("x"), 8),
        (Unavailable("x"), 9),
        (MemoryError(), 6),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:128] DefaultCPUAllocator: can't allocate memory"), 6),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory"), 6),
        (type("AcceleratorError", (RuntimeError,), {})("CUDA error: out of memory"), 6),
        (type("AcceleratorError", (RuntimeError,), {})("CUDA error: unspecified launch failure"), 9),
        (RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be reported later"), 9),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 6),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), 6),
        (ImportError("x.so: cannot allocate memory in static TLS block"), 6),
        (RuntimeError("can't start new thread"), 6),
        (RuntimeError("std::bad_alloc"), 6),
        (ImportError("No module named 'x'"), 1),
        (OSError(errno.ENOSPC, "No space left on device"), 6),
        (OSError(errno.EIO, "Input/output error"), 6),
        (KeyError("x"), 1),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 141),
        (typer.Exit(143), 143),
        (SystemExit(131), 131),
    ],
)
def test_every_error_has_its_exit_code_and_no_traceback(error: BaseException, code: int) -> None:
    exit_code, stdout, stderr = run_with(failing_with(error))
    assert (exit_code, stdout) == (code, "")
    assert "Traceback" not in stderr


def test_without_memory_for_a_traceback_an_error_is_still_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def format_exc() -> str:
        raise MemoryError

    monkeypatch.setattr(traceback, "format_exc", format_exc)
    exit_code, stdout, stderr = run_with(failing_with(MemoryError()))
    assert (exit_code, stdout, len(stderr.splitlines())) == (6, "", 1)
    assert stderr.startswith("out of memory: MemoryError")


def test_a_refusal_is_one_line_with_its_place_and_the_way_out() -> None:
    fault = DataFault("is not UTF-8", hint="save it as UTF-8", where=["corpus.txt:7"])
    assert run_with(failing_with(fault)) == (4, "", "corpus.txt:7: is not UTF-8; save it as UTF-8\n")


def test_several_faults_are_a_line_each() -> None:
    fault = RecipeFault("2 faults", faults=["r.yaml:3: a: wrong", "r.yaml:5: b: \x1b[31mwrong"])
    assert run_with(failing_with(fault)) == (3, "", "r.yaml:3: a: wrong\nr.yaml:5: b: \\x1b[31mwrong\n")


def test_a_bug_shows_its_traceback_only_with_debug_and_keeps_it_in_the_log_and_in_a_file(tmp_path: Path) -> None:
    logged: list[str] = []

    def body(console: Console) -> None:
        secret = "s3cret"
        console.log, console.crash = logged.append, lambda text: keep(tmp_path / "crash.txt", text)
        raise KeyError(f"\x1b[2J{len(secret)}\nof two lines")

    exit_code, _, stderr = run_with(body)
    assert (exit_code, stderr) == (
        1,
        f"a bug in minitf: KeyError: '\\x1b[2J6\\nof two lines'; traceback: {tmp_path}/crash.txt\n",
    )
    kept = (tmp_path / "crash.txt").read_text()
    assert kept.startswith("Traceback")
    assert "in body\n" in kept
    assert "s3cret" not in kept.replace('secret = "s3cret"', "")
    assert "\x1b" not in kept
    assert "Traceback" in logged[0]
    assert "Traceback" in run_with(body, "--debug")[2]


def keep(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("in_run", [None, "full"])
def test_without_a_run_folder_that_takes_it_a_traceback_goes_into_the_cache(
    in_run: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(text: str) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    def body(console: Console) -> None:
        console.crash = full if in_run else None
        raise AssertionError("of\nmany\nlines")

    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    exit_code, _, stderr = run_with(body)
    [kept] = (tmp_path / "cache" / "crashes").glob("crash-*.txt")
    assert (exit_code, stderr) == (1, f"a bug in minitf: AssertionError: of; traceback: {kept}\n")
    assert kept.read_text().endswith("AssertionError: of\nmany\nlines\n")


def test_a_traceback_that_can_be_kept_nowhere_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "file" / "cache"))
    assert run_with(failing_with(KeyError("x"))) == (
        1,
        "",
        "a bug in minitf: KeyError: 'x'; --debug prints the traceback\n",
    )


def test_out_of_memory_tells_the_way_out_in_one_line() -> None:
    said = "[enforce fail at alloc_cpu.cpp:128] DefaultCPUAllocator: can't allocate memory\nframe #0: c10::Error"
    exit_code, _, stderr = run_with(failing_with(RuntimeError(said)))
    assert (exit_code, stderr.count("\n")) == (6, 1)
    assert "half the train.micro_batch_size" in stderr


def test_json_is_exactly_one_object_with_null_for_nan() -> None:
    def body(console: Console) -> None:
        console.say("working")
        console.output(
            "loss nan",
            run=Path("/runs/a"),
            metrics={"loss": float("nan")},
            result=[{"x": float("-inf"), "y": "\x7f\x9b"}],
        )

    exit_code, stdout, stderr = run_with(body, "--json")
    assert (exit_code, stderr) == (0, "working\n")
    expected = {
        "ok": True,
        "command": "toy",
        "run": "/runs/a",
        "metrics": {"loss": None},
        "result": [{"x": None, "y": "\x7f\x9b"}],
    }
    assert json.loads(stdout) == expected
    assert stdout.isascii()
    assert "\x7f" not in stdout
    assert run_with(body) == (0, "loss nan\n", "working\n")


def test_a_refusal_with_json_is_an_envelope_that_keeps_what_was_reached() -> None:
    def body(console: Console) -> None:
        console.output("folder", run="/runs/a", metrics={"val.loss": 2.0})
        raise GateMissed("val.loss is 2.0", hint="train longer", where=["--assert"])

    exit_code, stdout, stderr = run_with(body, "--json")
    assert exit_code == 8
    assert json.loads(stdout) == {
        "ok": False,
        "command": "toy",
        "exit_code": 8,
        "error": {"message": "val.loss is 2.0", "hint": "train longer", "where": ["--assert"]},
        "run": "/runs/a",
        "metrics": {"val.loss": 2.0},
        "result": None,
    }
    assert stderr == "--assert: val.loss is 2.0; train longer\n"


def test_jsonl_is_one_envelope_a_line() -> None:
    def body(console: Console) -> None:
        for word in ("a", "b"):
            console.emit_json(result={"prompt": word})

    lines = run_with(body, "--json")[1].splitlines()
    assert [json.loads(line)["result"]["prompt"] for line in lines] == ["a", "b"]


def test_a_returned_exit_code_counts_and_says_so_in_json() -> None:
    def body(console: Console) -> int:
        console.output("/runs/a", run="/runs/a")
        return 143

    assert run_with(body)[:2] == (143, "/runs/a\n")
    envelope = json.loads(run_with(body, "--json")[1])
    assert (envelope["ok"], envelope["exit_code"], envelope["run"]) == (False, 143, "/runs/a")


def test_quiet_keeps_warnings_and_verbose_adds_details() -> None:
    def body(console: Console) -> None:
        console.detail("detail")
        console.say("line")
        console.warn("careful")

    assert run_with(body)[2] == "line\nwarning: careful\n"
    assert run_with(body, "-q")[2] == "warning: careful\n"
    assert run_with(body, "-v")[2] == "detail\nline\nwarning: careful\n"


def test_a_command_has_its_own_arguments_besides_the_common_options() -> None:
    def body(
        console: Console,
        recipe: Annotated[str, typer.Argument(help="A recipe.")],
        rows: Annotated[int, typer.Option()] = 3,
    ) -> None:
        """Say what the recipe holds."""
        console.output(f"{recipe} {rows}")

    assert run_with(body, "tiny", "--rows", "5", "-q")[1] == "tiny 5\n"
    help_text = run_with(body, "--help")[1]
    assert "Say what the recipe holds." in help_text
    assert help_text.index("--rows") < help_text.index("--json")


class _Stream:
    def __init__(self, terminal: bool) -> None:
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("choice", "terminal", "environment", "colored"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", False, {"GITHUB_ACTIONS": "true"}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(
    choice: str, terminal: bool, environment: dict[str, str], colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wants_color(choice, _Stream(terminal)) is colored  # type: ignore[arg-type]


_SCRIPT = """
import sys, typer
from mini_tf.cli import app as shell
from mini_tf.cli.terminal.console import Console, command
@shell.app.command("toy")
@command
def toy(console: Console, lines: int) -> None:
    console.say("a line on stderr")
    with console.bar(lines, initial=0) as bar:
        for i in range(lines):
            console.print_output("é line " + str(i))
            console.say("after it")
            bar.update()
    open(sys.argv[1] + "/survived", "w").close()
shell.main(["toy", sys.argv[2]])
"""


def in_a_shell(shell: str, folder: Path, code: str = _SCRIPT, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The toy command as `toy N` in a shell line; it leaves a file `survived` behind when it reaches its end."""
    script = folder / "script.py"
    script.write_text(code)
    line = f'toy() {{ "{sys.executable}" "{script}" "{folder}" "$@"; }}\n{shell}'
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, env=clean, timeout=600, check=False)


def test_a_reader_that_leaves_ends_the_command_in_silence_with_141(tmp_path: Path) -> None:
    done = in_a_shell(
        "toy 100000 2>err | head -1 >/dev/null; echo ${PIPESTATUS[0]} >&2; grep -ci -e traceback -e broken err >&2",
        tmp_path,
    )
    assert done.stderr == b"141\n0\n"


@pytest.mark.parametrize("closing", ["2>&-", "2>/dev/full", "2> >(exit)"])
def test_a_command_outlives_its_stderr(closing: str, tmp_path: Path) -> None:
    done = in_a_shell(f"toy 3 {closing}", tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "survived").exists()


def test_a_full_disk_behind_stdout_is_6(tmp_path: Path) -> None:
    done = in_a_shell("toy 3 >/dev/full", tmp_path)
    assert done.returncode == 6
    assert b"the disk is full" in done.stderr


def test_a_closed_stdout_is_6_since_the_result_is_lost(tmp_path: Path) -> None:
    done = in_a_shell("toy 3 >&-", tmp_path)
    assert (done.returncode, done.stderr) == (
        6,
        b"a line on stderr\ninput/output error: stdout is closed, so the result is lost\n",
    )
    assert in_a_shell("toy 3 >&- 2>&- <&-", tmp_path).returncode == 6
    assert in_a_shell("toy 0 >&-", tmp_path).returncode == 0  # it has no result


def test_a_full_disk_behind_stdout_does_not_hide_why_a_command_failed(tmp_path: Path) -> None:
    done = in_a_shell("toy --json none >/dev/full", tmp_path)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


def test_without_a_terminal_there_are_no_control_codes_and_text_is_utf8_in_any_locale(tmp_path: Path) -> None:
    done = in_a_shell("toy 2", tmp_path, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", GITHUB_ACTIONS="true")
    assert done.stdout.decode() == "é line 0\né line 1\n"
    assert done.stderr.decode() == "a line on stderr\nafter it\nafter it\n"


def test_a_bar_is_drawn_only_where_a_person_watches_and_leaves_whole_lines(tmp_path: Path) -> None:
    for terminal, bars in (("xterm", True), ("dumb", False)):
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        script = tmp_path / "script.py"
        script.write_text(_SCRIPT)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": terminal}
        subprocess.run(
            [sys.executable, script, tmp_path, "3"],
            stdout=subprocess.DEVNULL,
            stderr=follower,
            env=environment,
            check=True,
        )
        os.close(follower)
        seen = os.read(leader, 1 << 16).decode()
        os.close(leader)
        assert ("0/3" in seen) is bars
        assert ("\r" in seen.replace("\r\n", "\n")) is bars
        assert seen.count("after it\r\n") == 3


def picture(console: Console, lines: int = 1) -> None:
    words = ["é", " \x1b[31m", "[bold]"]
    for _ in range(lines):
        console.show(heat_map, Panel("", words, words, np.eye(3)), Scale())
        console.show(Text("\x1b[2J careless"))
        console.show(Text("=" * console.width))
    console.output(result={"width": console.width})


_PICTURE = f"""
import sys, numpy as np
from mini_tf.cli import app as shell
from mini_tf.cli.terminal.console import Console, command
from mini_tf.drawing.panel import Panel, Scale
from mini_tf.drawing.terminal import heat_map
from rich.text import Text
{inspect.getsource(picture)}
shell.app.command("toy")(command(picture))
shell.main(["toy", *sys.argv[2:]])
"""


@pytest.mark.parametrize(
    ("options", "environment", "colored"),
    [
        ((), {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, False),
        ((), {"FORCE_COLOR": "1", "TERM": "xterm", "COLORTERM": "truecolor"}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
    ],
)
def test_a_picture_has_colours_only_where_they_are_wanted_and_no_other_codes(
    options: tuple[str, ...],
    environment: dict[str, str],
    colored: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In another locale in a process of its own."""
    if "LC_ALL" in environment:
        done = in_a_shell("toy", tmp_path, _PICTURE, **environment)
        exit_code, shown, stderr = done.returncode, done.stdout.decode(), done.stderr.decode()
    else:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        exit_code, shown, stderr = run_with(picture, *options)
    assert (exit_code, stderr) == (0, "")
    plain = re.sub("\x1b\\[[0-9;]+m", "", shown)
    assert (plain != shown) is colored
    assert "\x1b" not in plain
    assert "\n\\x1b[2J careless\n" in plain
    assert "·⟨1B⟩[31m " in plain
    assert plain.endswith("\n" + "=" * 80 + "\n")
    assert ("@@" in plain) is not colored


def test_a_picture_is_as_wide_as_COLUMNS_says_and_silent_with_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "61")
    assert run_with(picture)[1].splitlines()[-1] == "=" * 61
    monkeypatch.setenv("COLUMNS", "7")
    assert json.loads(run_with(picture, "--json")[1])["result"] == {"width": 40}


def test_a_picture_for_a_terminal_is_coloured_and_fits_it(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 24, 50, 0, 0))
    script = tmp_path / "script.py"
    script.write_text(_PICTURE)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    subprocess.run([sys.executable, script, tmp_path], stdout=follower, stderr=follower, env=environment, check=True)
    os.close(follower)
    seen = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "\x1b[38;5;" in seen
    assert seen.endswith("\r\n" + "=" * 50 + "\r\n")


def test_a_reader_that_leaves_a_picture_ends_the_command_with_141(tmp_path: Path) -> None:
    line = "toy --lines 5000 2>err | head -1 >/dev/null; echo ${PIPESTATUS[0]} >&2; cat err >&2"
    done = in_a_shell(line, tmp_path, _PICTURE)
    assert done.stderr == b"141\n"


def test_refusals_all_have_an_exit_code_of_their_own() -> None:
    codes = [fault.exit_code for fault in MinitfError.__subclasses__()]
    assert sorted(codes) == [2, 3, 4, 5, 6, 7, 8, 9]
