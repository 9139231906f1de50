"""Runs `minitf` as a shell would: in this process where it can be, since importing torch takes longer than what is
tested.
"""

import io
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO

import pytest
from hostile import STEERING

from mini_tf.cli.app import main
from mini_tf.jobs import baselines, finishing

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
TINY = str(DATA / "tiny.yaml")
EXACT = ("runtime.device=cpu", "runtime.threads=1")
"""So that results compare to the bit."""
QUIET = (*EXACT, "log.samples=0")
"""Nothing is sampled, which would take most of a tiny run's time."""
ARITHMETIC = {
    name: value for name, value in os.environ.items() if name.startswith(("ATEN_", "ONEDNN_", "DNNL_", "MKL_"))
}
"""Which instructions this process computes with: with a bare environment another one gets the same bytes only if it has
them.
"""


def tiny_model(kind: str) -> str:
    """The override that makes the tiny recipe's model another kind of the same size, since a new kind drops all
    settings.
    """
    return f"model={{kind: {kind}, d_model: 32, n_layers: 2, n_heads: 2}}"


class Done(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def minitf(*arguments: str | Path, stdin: str | TextIO = "") -> Done:
    """One command, with nobody at a terminal."""
    text = io.BytesIO(stdin.encode() if isinstance(stdin, str) else b"")
    streams = [io.TextIOWrapper(buffer, encoding="utf-8") for buffer in (text, io.BytesIO(), io.BytesIO())]
    before = sys.stdin, sys.stdout, sys.stderr, sys.argv
    sys.stdin, sys.stdout, sys.stderr = streams if isinstance(stdin, str) else (stdin, *streams[1:])
    sys.argv = ["minitf", *map(str, arguments)]
    try:
        main()
    except SystemExit as leaving:
        exit_code = int(leaving.code or 0)
    finally:
        sys.stdin, sys.stdout, sys.stderr, sys.argv = before
    stdout, stderr = (stream.buffer.getvalue().decode() for stream in streams[1:])
    return Done(exit_code, stdout, stderr)


def main_of_a_fork(arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Be a process of `minitf` with these arguments and this environment, on the streams 0, 1 and 2."""
    code, environment = 99, {**environment}  # which may be os.environ
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(environment)
        sys.stdin, sys.stdout, sys.stderr = (open(n, mode, closefd=False) for n, mode in ((0, "r"), (1, "w"), (2, "w")))  # noqa: SIM115
        sys.argv = ["minitf", *arguments]
        main()
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # of a reader that has left
                stream.flush()
        os._exit(code)


def told(stderr: str) -> str:
    """What was said, after a look at it: lines for people, nothing that steers a terminal."""
    assert "Traceback" not in stderr
    assert not any(ord(character) < 32 and character != "\n" for character in stderr)
    return stderr


def results(stdout: str) -> list[dict[str, Any]]:
    """The result of each line of JSON."""
    return [json.loads(line)["result"] for line in stdout.splitlines()]


def evaluated(*arguments: str | Path) -> dict[str, Any]:
    """The metrics of `minitf evaluate`."""
    done = minitf("evaluate", *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout)["metrics"])


def record(run: Path) -> dict[str, Any]:
    """Its run.json."""
    return dict(json.loads((run / "run.json").read_text()))


def lines(run: Path) -> list[dict[str, Any]]:
    """Its metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


BASELINES = finishing.baselines_of, baselines.baselines_of_trained


@contextmanager
def compared() -> Iterator[None]:
    """Runs and evaluations measure baselines within, which are left out elsewhere (conftest.py)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finishing, "baselines_of", BASELINES[0])
        patch.setattr(baselines, "baselines_of_trained", BASELINES[1])
        yield


def refused(done: Done, *words: str, exit_code: int = 4) -> None:
    """The command said in one line, of safe characters, what is wrong, and nothing on stdout."""
    assert done.exit_code == exit_code, done
    assert done.stdout == ""
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr
    assert not set(done.stderr) & (set(STEERING) - {"\n"}), ascii(done.stderr)
    assert max(map(len, done.stderr.splitlines())) < 1000


def trained(folder: Path, *arguments: str | Path, recipe: str | Path = TINY) -> Path:
    """A finished run of the tiny recipe, changed by overrides, in `folder`."""
    done = minitf("pretrain", recipe, *QUIET, *arguments, "-d", folder)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == f"{folder}\n"
    return folder


def cut_off(run: Path, *steps: int) -> None:
    """Leave a finished run as if it was killed before its checkpoints of these steps, the last ones."""
    for step in steps:
        shutil.rmtree(run / "checkpoints" / f"step-{step:08d}")
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"state": "running"}))


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    """When each file below a folder was written and what it holds."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (os.stat(path).st_mtime_ns, path.read_bytes()) for path in files}


def in_a_fork(action: Callable[[], object]) -> None:
    """Do something in a forked process, which takes with it what it leaves behind; AssertionError with its traceback
    where it fails.
    """
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        failure = ""
        try:
            action()
        except BaseException:
            failure = traceback.format_exc()
        os.write(writes, failure[-60_000:].encode(errors="backslashreplace"))
        os._exit(bool(failure))
    os.close(writes)
    with open(reads, "rb") as said:
        failure = said.read().decode()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, failure


def flip(path: Path) -> None:
    """Change a bit near the end of a file, as of a tensor."""
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)


def change(path: Path, **fields: Any) -> None:
    """Give keys of a JSON file other values."""
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
