"""Signals, closed streams, odd environments, bugs: a process that is disturbed loses nothing, and says at most one
line.

A case's id begins with the number of its fault. Most cases fork this process, which has torch already, and let the
child send itself a signal at an exact moment; only what is about the start or the end of Python takes a process of its
own.
"""

import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from commands import ARITHMETIC, DATA, QUIET, ROOT, TINY, content, minitf, tiny_model
from hang import ending

from mini_tf.cli import app
from mini_tf.cli.terminal.console import Console
from mini_tf.jobs import assembling, finishing, parts, pretrain
from mini_tf.jobs.session import Session
from mini_tf.pipelines._references import ReferencePipeline
from mini_tf.run.disk import Disk
from mini_tf.run.folder import Run
from mini_tf.training.counters import Counters
from mini_tf.training.training import EagerSteps

SHORT = (*QUIET, "train.steps=8", "eval.every_steps=4", "checkpoint.every_steps=3", "model.dropout_rate=0.1")
RUN = ("pretrain", TINY, *SHORT)
PROMISED = ("metrics.jsonl", "model.safetensors", "checkpoints/step-00000008/optimizer.safetensors")
ANY_TRACE = re.compile("Traceback|Exception ignored|KeyboardInterrupt")

Patch = Callable[[pytest.MonkeyPatch], None]


class Ended(NamedTuple):
    """What became of a process: its exit code, or minus the signal it died of, and what it said."""

    status: int
    stdout: str
    stderr: str


def child(
    folder: Path,
    *arguments: str | Path,
    change: Patch | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> int:
    """The pid of a fork that runs one command as `python -m mini_tf` would, in a world changed so; its streams are
    files of `folder`, or these descriptors.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for number, name, given in ((1, "stdout", stdout), (2, "stderr", stderr)):
            file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file if given is None else given, number)
        sys.stdin, sys.stdout, sys.stderr = (open(n, mode, closefd=False) for n, mode in ((0, "r"), (1, "w"), (2, "w")))  # noqa: SIM115
        sys.argv = ["minitf", *map(str, arguments)]
        with pytest.MonkeyPatch.context() as patch:
            if change is not None:
                change(patch)
            app.main()
    except SystemExit as leaving:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # the exit code of Python's end, too
                leaving.code = 120
        os._exit(int(leaving.code or 0))
    except BaseException:
        traceback.print_exc()
    os._exit(99)


def ended(pid: int, folder: Path) -> Ended:
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return Ended(status, (folder / "stdout").read_text(), (folder / "stderr").read_text())


def forked(folder: Path, *arguments: str | Path, **world: Any) -> Ended:
    return ended(child(folder, *arguments, **world), folder)


def signalled(place: Any, name: str, *numbers: signal.Signals, call: int = 1, about: str = "") -> Patch:
    """A change: the process sends itself the signals at the `call`-th call of `place.name` whose arguments have `about`
    in them.
    """

    def change(patch: pytest.MonkeyPatch) -> None:
        real, calls = getattr(place, name), []

        def disturbed(*given: Any, **named: Any) -> Any:
            if not about or about in " ".join(map(str, given)):
                calls.append(1)
                for number in numbers if len(calls) == call else ():
                    os.kill(os.getpid(), number)
            return real(*given, **named)

        patch.setattr(place, name, disturbed)

    return change


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The promised files of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert minitf(*RUN, "-d", folder).exit_code == 0
    return promised(folder)


def measured(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "run.json").read_text())["metrics"])


def promised(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in PROMISED}


def continues(run: Path, whole: dict[str, bytes]) -> bool:
    """Whether the same command brings the run to the very end that an undisturbed one has."""
    done = minitf(*RUN, "-d", run)
    assert done.exit_code == 0, done.stderr
    return promised(run) == whole


def stopped_at(run: Path, moments: Mapping[str, tuple[Patch, int]], ending: str = "") -> None:
    """Stop one run at each moment after the other; each says so in one line at most, and with the exit code given, and
    names its folder on stdout unless it was killed.
    """
    for fault, (change, status) in moments.items():
        stopped = forked(run.parent, *RUN, "-d", run, change=change)
        assert stopped.status == status, (fault, stopped.stderr)
        assert stopped.stdout == (f"{run}\n" if status >= 0 else ""), fault
        assert stopped.stderr.endswith(ending), (fault, stopped.stderr)
        assert not ANY_TRACE.search(stopped.stderr), fault


def test_a_signal_within_a_step_finishes_it_saves_and_tells_how_to_go_on(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    """P1, P4: one after the other, from the first step to the fifth."""
    run = tmp_path / "run"
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    for step, number in enumerate(signals, 1):
        moment = {number.name: (signalled(Counters, "add_step", number), 128 + number)}
        stopped_at(run, moment, f"stopped at step {step}, saved; run the same command to continue\n")
        assert (run / f"checkpoints/step-{step:08d}/MANIFEST.json").exists()
    assert continues(run, whole)


def test_a_signal_that_comes_while_a_sample_is_written_is_answered_with_a_save(tmp_path: Path) -> None:
    """P3: at an evaluation that is not the best, so that nothing was saved before."""

    def change(patch: pytest.MonkeyPatch) -> None:
        worse = count(1)
        patch.setattr(Session, "measure", lambda *given: {"val.loss": float(next(worse))})
        signalled(Session, "_sample", signal.SIGTERM, call=2)(patch)

    run = tmp_path / "run"
    stopped = forked(tmp_path, *RUN, "eval.every_steps=2", "checkpoint.every_steps=7", "-d", run, change=change)
    assert (stopped.status, stopped.stderr.splitlines()[-1]) == (
        143,
        "stopped at step 4, saved; run the same command to continue",
    )
    assert (run / "checkpoints/step-00000004/MANIFEST.json").exists()


PAIRS = f"data={{train: {DATA / 'reversed.tsv'}, fields: {{source: source, target: target}}, split: 4%}}"
OF_PAIRS = (
    *RUN,
    PAIRS,
    tiny_model("encoder_decoder"),
    "generate.max_new_tokens=4",
    "eval.translations=3",
    "eval.tokens=9",
)


def test_a_signal_while_held_out_pairs_are_translated_or_evaluated_loses_nothing(tmp_path: Path) -> None:
    """P3: at the end all is saved by then, and the whole held-out text may take long."""
    run, whole = tmp_path / "run", tmp_path / "whole"
    saved = "stopped at step {}, saved{}; run the same command to continue"
    translation, evaluation = (ReferencePipeline, "generate_with_references"), (finishing, "_evaluate")
    last = saved.format(8, ", before the last evaluation")
    assert minitf(*OF_PAIRS, "-d", whole).exit_code == 0
    for (place, name), line in ((translation, saved.format(4, "")), (evaluation, last), (translation, last)):
        stopped = forked(tmp_path, *OF_PAIRS, "-d", run, change=signalled(place, name, signal.SIGTERM))
        assert (stopped.status, stopped.stderr.splitlines()[-1]) == (143, line)
    assert minitf(*OF_PAIRS, "-d", run).exit_code == 0
    assert promised(run) == promised(whole)
    assert measured(run) | {"minutes": 0} == measured(whole) | {"minutes": 0}
    assert measured(run).keys() > {"val.bleu", "val.loss"}


def test_a_run_stopped_at_any_moment_ends_as_if_nothing_had_been(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """P3: two runs, stopped at one moment after the other."""
    killed, saved = -signal.SIGTERM, 143
    first = {
        "before-tokenizing": (assembling, "open_data", 1, killed),
        "before-run.json": (Run, "start", 1, killed),
        "before-the-model": (pretrain, "build", 1, killed),
        "save": (Run, "save", 1, saved),  # of step 3
        "evaluation": (parts, "evaluate", 1, saved),  # of step 4
        "within-save": (Disk, "write", 9, saved),  # of step 6
        "end": (Console, "output", 1, killed),
    }
    second = {
        "publish": (Run, "publish", 1, saved),  # of step 3
        "sample": (Session, "_sample", 1, saved),  # of step 4
        "rotate": (Run, "rotate", 2, saved),  # of step 6: a run that continues begins with one, and with a publish
        "drawing": (Run, "plot_losses", 1, 0),
    }
    for name, moments in (("first", first), ("second", second)):
        changes = {
            fault: (signalled(place, method, signal.SIGTERM, call=call), status)
            for fault, (place, method, call, status) in moments.items()
        }
        stopped_at(tmp_path / name, changes)
        assert continues(tmp_path / name, whole)


def test_tokenizing_that_was_killed_leaves_nothing_that_stays(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """P3: the draft of a text's ids belongs to a process that is no more, so the next one sweeps it."""
    cache = tmp_path / "cache"

    def change(patch: pytest.MonkeyPatch) -> None:
        signalled(Path, "write_text", signal.SIGTERM)(patch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINITF_CACHE", str(cache))
        assert forked(tmp_path, *RUN, "-d", tmp_path / "run", change=change).status == -signal.SIGTERM
        assert list(cache.rglob("*.tmp"))
        assert not (tmp_path / "run").exists()
        assert continues(tmp_path / "run", whole)
        assert not list(cache.rglob("*.tmp"))


def test_a_second_interrupt_within_a_save_leaves_at_once_with_the_old_checkpoint_valid(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    """P2"""
    run = tmp_path / "run"
    for operation, about in (("write", "model.safetensors"), ("write", "MANIFEST.json"), ("rename", "")):
        change = signalled(Disk, operation, signal.SIGINT, signal.SIGINT, about=f"step-00000006{about and '/'}{about}")
        stopped = forked(tmp_path, *RUN, "-d", run, change=change)
        assert stopped.status in (130, -signal.SIGINT), stopped.stderr
        assert not ANY_TRACE.search(stopped.stderr)
        assert sorted(path.name for path in run.glob("checkpoints/step-*"))[-1] == "step-00000004"
    assert continues(run, whole)


AT_AN_IMPORT = """
import atexit, os, runpy, signal, sys
moments = sys.argv.pop(1).split(",")
send = lambda: os.kill(os.getpid(), signal.SIGINT)
if "exit" in moments:
    atexit.register(send)
sys.addaudithook(lambda event, given: send() if event == "import" and given[0] in moments else None)
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("mini_tf", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("moment", "arguments"),
    [
        pytest.param("mini_tf.cli.app", "--help", id="P1-first-import"),
        pytest.param("exit", "pretrain no-such-recipe --json", id="P1-exit-of-a-refusal"),
        pytest.param("mini_tf.trained.opening", "evaluate RUN", id="P1-a-command's-first-import"),
        pytest.param("numpy._core._multiarray_umath", "evaluate RUN", id="P1-importing-numpy"),
        pytest.param("torch._C", "evaluate RUN", id="P1-importing-torch"),
    ],
)
def test_an_interrupt_while_python_imports_or_ends_is_a_silent_death(
    moment: str, arguments: str, tmp_path: Path, classifier: Path
) -> None:
    given = f"{moment} {arguments.replace('RUN', shlex.quote(str(classifier)))}"
    done = own_process(f"exec {shlex.quote(sys.executable)} -c {shlex.quote(AT_AN_IMPORT)} {given}", tmp_path)
    assert done.returncode in (130, -signal.SIGINT), done.stderr
    assert len([line for line in done.stderr.splitlines() if not line.endswith(" ...")]) <= 1  # a slow machine waits
    assert not ANY_TRACE.search(done.stderr)


def test_an_interrupt_that_the_shell_had_ignored_ends_nothing(tmp_path: Path) -> None:
    """P1: as in a background job of a script."""
    code = AT_AN_IMPORT.replace("signal.default_int_handler", "signal.SIG_IGN")
    line = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(code)} mini_tf.cli.app,exit --version"
    done = own_process(line, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


class Sender:
    """Interrupts the process when it is forgotten: Python cannot raise there, only print "Exception ignored"."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_where_nothing_can_be_raised_is_a_silent_death(tmp_path: Path) -> None:
    """P1"""

    def change(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(pretrain, "build", lambda *given: Sender() and None)

    done = forked(tmp_path, *RUN, "-d", tmp_path / "run", change=change)
    assert (done.status, done.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize(
    "place", [pytest.param((Console, "close"), id="P1-envelope"), pytest.param((Console, "output"), id="P1-output")]
)
def test_an_interrupt_while_the_product_is_printed_is_one_line_at_most(place: tuple[Any, str], tmp_path: Path) -> None:
    done = forked(tmp_path, "recipe", "check", TINY, "--json", change=signalled(*place, signal.SIGINT))
    assert done.status in (130, -signal.SIGINT)
    assert done.stderr in ("", "interrupted\n")


def own_process(
    line: str, folder: Path, stdout: int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A line of shell whose last command takes the place of the shell; `minitf` is `python -m mini_tf`."""
    clean = {name: os.environ[name] for name in ("PATH", "MINITF_CACHE")}
    clean |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | ARITHMETIC
    line = re.sub("^minitf", f"exec {shlex.quote(sys.executable)} -m mini_tf", line)
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=clean | environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=600,
        check=False,
    )


def taken_by(whom: str) -> int:
    """A descriptor for stdout: a full disk, or a pipe that nobody reads."""
    if whom == "full":
        return os.open("/dev/full", os.O_WRONLY)
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def test_a_second_run_on_a_folder_is_refused_and_the_first_is_none_the_worse(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    """P6, P16: the first one sleeps and wakes; the lock dies with its process, so after kill -9 the folder is free."""
    run = tmp_path / "run"

    def sleep_twice(patch: pytest.MonkeyPatch) -> None:
        for step in (3, 5):
            signalled(Counters, "add_step", signal.SIGSTOP, call=step)(patch)

    pid = child(tmp_path, *RUN, "-d", run, change=sleep_twice)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    before = content(run)
    with ending():  # who waits for the lock of a process that stands still waits for ever
        second = minitf(*RUN, "-d", run)
    assert (second.exit_code, second.stdout) == (5, "")
    assert f"is in use by process {pid} on " in second.stderr
    assert second.stderr.count("\n") == 1
    assert content(run) == before
    os.kill(pid, signal.SIGCONT)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    os.kill(pid, signal.SIGKILL)
    assert ended(pid, tmp_path).status == -signal.SIGKILL
    assert continues(run, whole)


def test_out_of_memory_is_6_and_half_a_micro_batch_goes_on(tmp_path: Path) -> None:
    """P9: within the second step no MiB in one piece is left, neither of the address space nor of what was freed
    before.
    """
    run, held = tmp_path / "run", []
    command = (*RUN, "train.batch_size=128", "train.steps=2", "-d", run)

    def change(patch: pytest.MonkeyPatch) -> None:
        learn = EagerSteps.gradients

        def limited(*given: Any) -> Any:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
            with suppress(RuntimeError):
                while True:
                    held.append(torch.empty(1 << 20, dtype=torch.uint8))
            # Python's small objects are not in the same heap; a tensor shall be what does not fit.
            resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), resource.RLIM_INFINITY))
            return learn(*given)

        patch.setattr(EagerSteps, "gradients", limited)

    assert forked(tmp_path, *command, change=signalled(Counters, "add_step", signal.SIGTERM)).status == 143
    done = forked(tmp_path, *command, change=change)
    assert done.status == 6, done.stderr
    assert "out of memory at step 2, with micro-batches of 128 rows: " in done.stderr.splitlines()[-1]
    assert "; train.micro_batch_size=64 continues the run; results may differ" in done.stderr.splitlines()[-1]
    assert not ANY_TRACE.search(done.stderr)
    assert not list(run.glob("crash-*"))
    halved = minitf(*command, "train.micro_batch_size=64")
    assert halved.exit_code == 0, halved.stderr
    assert f"continuing {run} from step 1" in halved.stderr


def test_training_goes_on_with_a_full_disk_behind_its_streams(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """P11; the exit code tells that stdout is lost."""
    done = forked(tmp_path, *RUN, "-d", tmp_path / "run", stdout=taken_by("full"), stderr=taken_by("full"))
    assert done.status == 6
    assert promised(tmp_path / "run") == whole


@pytest.mark.parametrize(
    ("arguments", "code", "whom"),
    [
        pytest.param("--help", None, "nobody", id="P11-help"),
        pytest.param("--version", None, "full", id="P11-version"),
        pytest.param("recipe list", None, "nobody", id="P11-text"),
        pytest.param("recipe list", None, "full", id="P11-text-full"),
        pytest.param("recipe list --json", None, "nobody", id="P11-envelope"),
        pytest.param("recipe list --json", None, "full", id="P11-envelope-full"),
        pytest.param("rnus --json", 2, "full", id="P11-usage"),
        pytest.param("runs show x --json", 5, "full", id="P11-refusal"),
    ],
)
def test_a_product_that_nobody_takes_ends_a_command_without_noise(
    arguments: str, code: int | None, whom: str, tmp_path: Path
) -> None:
    """A refusal that stdout does not take keeps its own exit code: stderr has told it."""
    done = forked(tmp_path, *arguments.split(), stdout=taken_by(whom))
    assert done.status == (141 if whom == "nobody" else code or 6), done.stderr
    assert done.stderr.count("\n") <= 1
    assert not ANY_TRACE.search(done.stderr)


def test_neither_clock_nor_time_zone_nor_locale_decides_a_byte(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """P13: every look at a clock finds it an hour earlier than the last."""
    now = iter(range(2_000_000_000, 0, -3600))
    for clock in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, clock, lambda: float(next(now)))
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    try:
        assert minitf(*RUN, "-d", tmp_path / "run").exit_code == 0
    finally:
        monkeypatch.undo()
        time.tzset()
    assert promised(tmp_path / "run") == whole


def test_a_bare_environment_without_streams_gives_the_same_bytes(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """P11, P13, P14: few files, no place for temporary ones, no home, the C locale, another hash seed; nohup, a session
    of its own, a working directory that cannot be written; stdin and stderr are closed, and nobody reads stdout.
    """
    kept = {name: os.environ[name] for name in ("PATH", "MINITF_CACHE")} | {"PYTHONPATH": str(ROOT)} | ARITHMETIC
    odd = {"TMPDIR": "/nonexistent", "LC_ALL": "C", "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "random"}
    bare = kept | odd | dict.fromkeys(("PYTHONUTF8", "PYTHONCOERCECLOCALE"), "0")
    environment = [f"{name}={value}" for name, value in bare.items()]
    line = shlex.join(["env", "-i", *environment, "setsid", "nohup", sys.executable, "-m", "mini_tf"])
    here = tmp_path / "here"
    here.mkdir(mode=0o555)
    done = own_process(f"ulimit -n 64; {line} {shlex.join(RUN)} -d ../run 2>&- <&-", here, taken_by("nobody"))
    assert (done.returncode, done.stderr) == (141, "")
    assert promised(tmp_path / "run") == whole
    assert list(here.iterdir()) == []


def test_what_is_ignored_stays_ignored(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """P1, P4: nohup ignores SIGHUP, and a shell SIGINT for the background jobs of a script."""
    numbers = (signal.SIGHUP, signal.SIGINT)

    def change(patch: pytest.MonkeyPatch) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        signalled(pretrain, "build", *numbers)(patch)
        signalled(Counters, "add_step", *numbers, *numbers)(patch)

    assert forked(tmp_path, *RUN, "-d", tmp_path / "run", change=change).status == 0
    assert promised(tmp_path / "run") == whole


def test_a_bug_within_a_step_leaves_one_line_a_crash_file_and_a_run_that_continues(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15"""
    run, secret = tmp_path / "run", "s3cr3t-in-the-environment"
    monkeypatch.setenv("MINITF_TEST_TOKEN", secret)

    def change(patch: pytest.MonkeyPatch) -> None:
        real = Counters.add_step

        def broken(counters: Any, loss: float) -> None:
            if counters.steps == 3 and loss:
                raise LookupError("no \x1b[31msuch thing\nsecond line")
            real(counters, loss)

        patch.setattr(Counters, "add_step", broken)

    done = forked(tmp_path, *RUN, "-d", run, change=change)
    [kept] = run.glob("crash-*.txt")
    assert done.status == 1
    assert done.stderr.splitlines()[-1] == f"a bug in minitf: LookupError: no \\x1b[31msuch thing; traceback: {kept}"
    assert not ANY_TRACE.search(done.stderr)
    text = kept.read_text()
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("LookupError: no \\x1b[31msuch thing\nsecond line\n")
    assert secret not in text
    assert "counters.steps == 3" in text or "broken" in text
    assert continues(run, whole)
