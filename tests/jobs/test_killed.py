"""Killed at any moment and started again with the same command, a run ends with the same bytes as one that was never
interrupted.

Processes and kill -9 first; the long form (`pytest -m slow -s tests/jobs/test_killed.py`) trains shipped recipes,
prints where each kill met them, and can be gone on with by --last-failed. Then, forked from this process and so much
faster, runs that die after a step; and what a death before or after anything that a run does to its folder would leave.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from commands import DATA, EXACT, ROOT, TINY, content, minitf, tiny_model
from hang import ending, outcome
from processes import Command

import mini_tf.jobs.pretrain  # noqa: F401  before the forks, each of which would import it anew
from mini_tf.jobs import killed_runs
from mini_tf.run.finding import try_lock
from mini_tf.run.folder import Run
from mini_tf.training.machine.device import available_cores

PINNED = ("runtime.device=cpu", "runtime.precision=fp32", "runtime.compile=false")
"""What `auto` would ask the clock, which may answer two runs differently."""

ENCODING, LEARNING, SAVING = "no folder, inside the encoding of the text", " saved", "inside the save"
"""Moments, by what is found after a kill there: before the text is encoded, inside step 19, inside a save that is not
the first.
"""
STANDING_STILL = """
import os, signal
import mini_tf.system.cache, mini_tf.training.loop
from mini_tf.run.disk import Disk

def stand_still_before(place, name, reached):
    real = getattr(place, name)
    def disturbed(*given):
        if reached(*given):
            os.kill(os.getpid(), signal.SIGSTOP)
        return real(*given)
    setattr(place, name, disturbed)

steps = iter(range(1, 1000))
if moment == "inside the save":
    reached = lambda disk, old, new: old.name.startswith(".tmp-step-") and list(old.parent.glob("step-*"))
    stand_still_before(Disk, "rename", reached)
elif moment == " saved":  # between the gradient of a step and the step
    stand_still_before(mini_tf.training.loop, "clip_factor", lambda norm, clip: next(steps) == 19)
else:
    stand_still_before(mini_tf.system.cache, "sha256_of", lambda path, *prefix: path.parent.parent.name == "tokens")
"""
"""Let a process wait for its kill at a `moment` that a clock would seldom meet."""


class Training:
    """`minitf pretrain` as one command line with a folder and a cache of its own, to be given again and again."""

    def __init__(self, place: Path, arguments: Sequence[str], threads: int) -> None:
        self.folder, self.cache = place / "run", place / "cache"
        settings = (*arguments, *PINNED, f"runtime.threads={threads}")
        self.command = [sys.executable, "-m", "mini_tf", "pretrain", *settings, "-d", str(self.folder)]

    def start(self) -> "subprocess.Popen[bytes]":
        threads, quiet = ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT"), subprocess.DEVNULL
        environment = {name: value for name, value in os.environ.items() if name not in threads}
        environment["MINITF_CACHE"] = str(self.cache)
        return subprocess.Popen(
            self.command, cwd=ROOT, env=environment, start_new_session=True, stdout=quiet, stderr=subprocess.PIPE
        )

    def finish(self) -> float:
        """To its end; the seconds it took."""
        began = time.monotonic()
        process = self.start()
        _, stderr = process.communicate(timeout=600)
        assert process.returncode == 0, stderr.decode()
        return time.monotonic() - began

    def kill_when(self, reached: Callable[[], object]) -> str | None:
        """kill -9 as soon as `reached`; how the folder was found then, None where the run had ended before."""
        process = self.start()
        while not reached() and process.poll() is None:
            time.sleep(2e-4)
        process.kill()
        process.communicate()
        return self.found() if process.returncode == -signal.SIGKILL else None

    def kill_inside(self, moment: str) -> str:
        """kill -9 at ENCODING, LEARNING or SAVING; how the folder was found then."""
        environment = {**os.environ, "MINITF_CACHE": str(self.cache)}
        prepare = partial(exec, STANDING_STILL, {"moment": moment})
        process = Command(
            self.command[3:], environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, prepare=prepare
        )
        try:
            with ending():
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        finally:
            process.send_signal(signal.SIGKILL)
        _, stderr = outcome(process)
        assert process.returncode == -signal.SIGKILL, stderr
        found = self.found()
        assert moment in found
        return found

    def kill_after(self, seconds: float) -> str:
        """Where the run had ended by then: once more from the beginning, and sooner."""
        end = time.monotonic() + seconds
        found = self.kill_when(lambda: time.monotonic() >= end)
        if found is None:
            self.forget()
            return self.kill_after(0.8 * seconds)
        return found

    def forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.cache)

    def is_encoding(self) -> bool:
        return any(name.endswith(".tmp") for name in _names(self.cache / "tokens"))

    def found(self) -> str:
        names = sorted(_names(self.folder / "checkpoints"), reverse=True)
        if unfinished := [name for name in names if name.startswith(".tmp-step-")]:
            return f"{SAVING} of step {int(unfinished[0][10:])}"
        if saved := [name for name in names if name.startswith("step-")]:
            return f"step {int(saved[0][5:])} saved"
        if not self.folder.exists():
            return ENCODING if self.is_encoding() else "no folder"
        return "no checkpoint"

    def product(self) -> dict[str, bytes]:
        return product(self.folder)


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []


def product(folder: Path) -> dict[str, bytes]:
    """All that is promised to be the same."""
    last = folder / "checkpoints" / f"step-{json.loads((folder / 'run.json').read_text())['step']:08d}"
    files = (folder / "metrics.jsonl", folder / "model.safetensors", last / "optimizer.safetensors")
    return {path.name: path.read_bytes() for path in files} | {
        "checkpoints": " ".join(sorted(os.listdir(last.parent))).encode()
    }


def assert_same(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    assert [name for name in one if one[name] != other[name]] == []  # not the bytes themselves: pytest would show them


MODEL = "model={{kind: {}, d_model: 16, n_layers: 2, n_heads: 2, dropout_rate: 0.1}}"
SMALL = (
    *("train.steps=24", "train.context=16", "train.batch_size=4", "train.micro_batch_size=4", "data.split=2%"),
    "checkpoint.every_steps=4",
    *("eval.every_steps=9", "eval.tokens=50", "log.every_steps=1", "generate.max_new_tokens=4"),
)
PAIRS = (
    f"data={{train: {DATA / 'reversed.tsv'}, fields: {{source: source, target: target}}, split: 10%}}",
    "eval.translations=5",
)
BY_TOKENS = (
    "tokenizer={kind: bpe, vocab_size: 300, source: {kind: char}}",
    "train.batch_tokens=300",
    "train.micro_batch_size=4",
)
"""A vocabulary for each side, and steps of another number of rows each, cut into micro-batches."""


@pytest.mark.parametrize("kind", ["decoder"], ids=["P5-decoder"])
def test_kill_9_inside_the_encoding_a_step_and_a_save_and_again_changes_no_byte(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other kinds die in forks, below."""
    arguments = (TINY, *SMALL, MODEL.format(kind))
    whole, cut = tmp_path / "whole", Training(tmp_path / "cut", arguments, threads=1)
    done = minitf("pretrain", *arguments, *PINNED, "runtime.threads=1", "-d", whole)
    assert done.exit_code == 0, done.stderr
    for moment in (ENCODING, LEARNING, SAVING):
        cut.kill_inside(moment)
    monkeypatch.setenv("MINITF_CACHE", str(cut.cache))
    done = minitf(*cut.command[3:])
    assert done.exit_code == 0, done.stderr
    assert_same(cut.product(), product(whole))


LONG = {
    "gpt-char": ("gpt-char", "model.dropout_rate=0.1", "train.steps=160", "train.micro_batch_size=24"),
    "bert-nano": ("bert-nano", "model.dropout_rate=0.1", "train.steps=50", "train.micro_batch_size=24"),
    "transformer-nano": ("transformer-nano", "model.dropout_rate=0.1", "train.steps=40", "train.micro_batch_size=60"),
}
OFTEN = {
    "gpt-char": ("eval.every_steps=40", "checkpoint.every_steps=7"),
    "bert-nano": ("eval.every_steps=13", "eval.tokens=20k", "checkpoint.every_steps=3"),
    "transformer-nano": ("eval.every_steps=11", "eval.translations=16", "checkpoint.every_steps=3"),
}
KILLS = 11
"""Of each recipe; one of them inside a save."""


@pytest.fixture(scope="module", params=LONG)
def whole(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Training, float, tuple[str, ...]]:
    """A shipped recipe trained without interruption, with as many threads as there are cores; how long that took."""
    arguments = (*LONG[request.param], *OFTEN[request.param])
    training = Training(tmp_path_factory.mktemp(request.param), arguments, available_cores())
    seconds = training.finish()
    print(f"\n{request.param}: {seconds:.1f} s without interruption")
    return training, seconds, arguments


@pytest.mark.slow
@pytest.mark.parametrize("number", range(KILLS))
def test_a_shipped_recipe_survives_kill_9(
    number: int, whole: tuple[Training, float, tuple[str, ...]], tmp_path: Path
) -> None:
    reference, seconds, arguments = whole
    cut = Training(tmp_path, arguments, available_cores())
    if number == 0:
        print(f"\n{arguments[0]}: killed {cut.kill_inside(SAVING)}", end="")
    else:
        # One moment in each of equal parts of the whole wall time.
        moment = seconds * (number - 1 + random.Random(f"{arguments[0]} {number}").random()) / (KILLS - 1)
        print(f"\n{arguments[0]}: killed after {moment:.2f} s: {cut.kill_after(moment)}", end="")
    cut.finish()
    assert_same(cut.product(), reference.product())


# Forks die in place of whole processes: no second import of torch, so all of it takes a tenth of a second.

STEPS = 6
DUE = ("checkpoint.every_steps=3", "eval.every_steps=2", "eval.tokens=20", "log.every_steps=1")
FEW = ("train.context=16", "train.batch_size=4", "data.split=2%")
UNEVEN = (f"train.steps={STEPS}", *FEW, *DUE)


def train(*arguments: str | Path) -> None:
    done = minitf("pretrain", TINY, *EXACT, *UNEVEN, *arguments)
    assert done.exit_code == 0, done.stderr


def dies(prepare: Callable[[], object], *command: str | Path) -> None:
    """Run a command in a fork that has to die, as `prepare` sets it up to."""
    pid = os.fork()
    if pid == 0:
        try:
            prepare()
            minitf(*command)
        finally:
            os._exit(70)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == DEAD


DEAD = 9


def die(*_: object) -> NoReturn:
    os._exit(DEAD)


def die_at_record(step: int) -> None:
    """Let the process die when it has recorded a step."""
    record = Run.record

    def record_and_die(self: Run, report: dict[str, Any], seconds: float | None = None) -> None:
        record(self, report, seconds)
        if report["step"] == step:
            die()

    Run.record = record_and_die  # type: ignore[method-assign, assignment]


RECIPES = {
    "micro-batches": ("train.micro_batch_size=2", "model.dropout_rate=0.2", "data.pack=docs"),
    "muon": (
        *("optimizer.kind=muon", "optimizer.lr=0.02", "model.dropout_rate=0.1", "train.stream=true"),
        *("model.attention={kind: softmax, memory_length: 24, memory_cache: inputs}", "model.positions=alibi"),
    ),
    "P5-encoder": (
        *(tiny_model("encoder"), "model.dropout_rate=0.1", "objective.scheme=whole_word"),
        *("checkpoint.keep_best=0", "checkpoint.keep_last=1"),
    ),
    "P5-encoder_decoder": (
        *(*PAIRS, *BY_TOKENS, tiny_model("encoder_decoder"), "model.dropout_rate=0.2"),
        *("generate.num_beams=3", "generate.max_new_tokens=8"),
    ),
    "patience": ("eval.patience=2", "eval.every_steps=1", "optimizer.lr=1", "schedule.kind=constant"),
    "until": ("eval.until=train.loss<1e9", "eval.every_steps=3"),
    "best": ("eval.best=accuracy", "eval.every_steps=1", "checkpoint.keep_last=1"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "P5-encoder_decoder" else name for name in RECIPES]
)
def test_a_run_that_dies_after_a_step_and_again_ends_with_the_same_bytes(name: str, tmp_path: Path) -> None:
    """It dies before the first save, and again after it; a run of test_finetune.py dies after every step."""
    recipe = (*RECIPES[name], "log.samples=0")
    train(*recipe, "-d", tmp_path / "whole")
    record = json.loads((tmp_path / "whole" / "run.json").read_text())
    last = record["step"]
    assert last < STEPS if name in ("patience", "until") else last == STEPS
    for step in (2, last - 1):
        dies(partial(die_at_record, step), "pretrain", TINY, *EXACT, *UNEVEN, *recipe, "-d", tmp_path / "cut")
    train(*recipe, "-d", tmp_path / "cut")
    assert_same(product(tmp_path / "cut"), product(tmp_path / "whole"))
    metrics = json.loads((tmp_path / "cut" / "run.json").read_text())["metrics"]
    assert {**metrics, "minutes": 0} == {**record["metrics"], "minutes": 0}
    assert ("val.bleu" in metrics) == (name == "P5-encoder_decoder")


@pytest.mark.slow
def test_translations_on_the_way_leave_no_trace_in_what_is_learnt(tmp_path: Path) -> None:
    """Nor do beams and samples: only the figures that they give stand in metrics.jsonl besides."""
    recipe, learnt = RECIPES["P5-encoder_decoder"], []
    for number, how in enumerate(
        (("eval.translations=0", "log.samples=0"), ("eval.every_steps=1", "generate.num_beams=1"))
    ):
        train(*recipe, *how, "-d", tmp_path / f"run{number}")
        made = product(tmp_path / f"run{number}")
        lines = map(json.loads, made.pop("metrics.jsonl").splitlines())
        assert made.pop("model.safetensors")
        assert made.pop("checkpoints")  # an evaluation that is the best so far keeps one
        learnt.append((made, [(line["loss"], line["grad_norm"]) for line in lines]))
    assert learnt[0] == learnt[1]


DEEDS = (
    *("start", "resume", "record", "save", "rotate", "publish", "record_auto"),
    *("extend", "write", "write_sample", "plot_losses", "finish"),
)
"""What a run does to its folder."""


def moments(deeds: Sequence[str], states: Sequence[frozenset[Any]], of: Collection[str]) -> list[int]:
    """Before the first and after the last time of each deed, but one for all in which the folder was in one state."""
    positions = [[number for number, name in enumerate(deeds) if name == deed] for deed in of if deed in deeds]
    chosen = sorted({number for position in positions for number in (position[0], position[-1])}, reverse=True)
    return sorted({states[number]: number for number in chosen}.values())


@pytest.mark.parametrize(("extend", "of"), [((), DEEDS), (("--extend", "3"), ("extend", "save", "finish"))])
def test_a_run_that_dies_before_or_after_anything_it_does_ends_with_the_same_bytes(
    extend: tuple[str, ...], of: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a death at a moment leaves is what the folder holds then, as a copy that goes on."""
    recipe = ("generate.max_new_tokens=2", "train.steps=4", "model.dropout_rate=0.1")
    deeds, states, whole = list[str](), list[frozenset[Any]](), tmp_path / "whole"

    def note(deed: str) -> None:
        states.append(frozenset((name, data) for name, (_, data) in content(whole).items()))
        if whole.exists():
            shutil.copytree(whole, tmp_path / f"cut-{len(deeds)}")
        deeds.append(deed)

    if extend:
        train(*recipe, "-d", whole)
    with monkeypatch.context() as patch:
        for name in DEEDS:

            def noted(self: Run, *given: Any, _name: str = name, _deed: Any = getattr(Run, name), **named: Any) -> Any:
                note(_name)
                result = _deed(self, *given, **named)
                note(_name)
                return result

            patch.setattr(Run, name, noted)
        train(*recipe, *extend, "-d", whole)
    assert {"record", "save", "publish", "write", "finish"} <= {*deeds}
    if extend:
        deeds.pop()  # after that it is finished: the same command again would ask for three further steps
    for moment in moments(deeds, states, of):
        train(*recipe, *extend, "-d", tmp_path / f"cut-{moment}")
        assert_same(product(tmp_path / f"cut-{moment}"), product(whole))


# `minitf doctor --resume`: the same proof in the user's hands.

SMALLER = """
import mini_tf.data.corpora.grammar as grammar
from mini_tf.jobs import killed_runs
grammar.N_SENTENCES, killed_runs.MIN_KILLS, killed_runs.SECONDS = 500, 2, 0.0
killed_runs.RECIPE = killed_runs.RECIPE.replace("steps: 120", "steps: 14").replace("split: 0.2%", "split: 2%")
killed_runs.RECIPE = killed_runs.RECIPE.replace("d_model: 64", "d_model: 16").replace("context: 64", "context: 16")
killed_runs.RECIPE = killed_runs.RECIPE.replace("log: {every_steps: 1}", "log: {every_steps: 1, samples: 0}")
"""
LOSING_MOMENTS = """
import mini_tf.optimizers
mini_tf.optimizers.Optimizer.load = lambda self, tensors: None
"""


def doctor(preparation: str, cache: Path, *arguments: str) -> Command:
    """`minitf doctor --resume` in a process of its own, in which the preparation has run."""
    environment, pipe = {**os.environ, "MINITF_CACHE": str(cache)}, subprocess.PIPE
    prepare = partial(exec, f"{SMALLER}{preparation}", {})
    return Command(["doctor", "--resume", *arguments], environment, stdout=pipe, stderr=pipe, prepare=prepare)


def test_doctor_proves_that_runs_of_a_recipe_end_with_the_same_bytes_when_killed(tmp_path: Path) -> None:
    process = doctor("", tmp_path, "--json", TINY, *FEW, "train.steps=12", "checkpoint.every_steps=3", "log.samples=0")
    stdout, stderr = outcome(process)
    assert process.returncode == 0, stderr
    result = json.loads(stdout)["result"]
    assert (result["equal"], result["repeats"], result["steps"]) == (True, None, 12)
    assert len(result["kills"]) >= 2
    assert next(kill["found"] for kill in result["kills"] if kill["inside_save"]).startswith("while saving step")
    assert all(kill["differs"] == dict.fromkeys(FILES) for kill in result["kills"])
    assert stderr.count("byte-identical after resuming") == len(result["kills"])
    assert not (tmp_path / "resume-proof").exists()


FILES = ("metrics.jsonl", "model.safetensors", "optimizer.safetensors")


def test_doctor_is_8_and_names_the_place_where_a_byte_differs(tmp_path: Path) -> None:
    process = doctor(LOSING_MOMENTS, tmp_path)
    stdout, stderr = outcome(process)
    assert process.returncode == 8, stderr
    assert re.search(
        r"metrics.jsonl differs, first in line [0-9]+; two uninterrupted runs are byte-identical, so this is a bug",
        stderr,
    )
    assert re.search(r"while saving step [0-9]+ +line [0-9]+ +tensor [a-z0-9._]+ +tensor [a-z0-9._]+\n", stdout)
    assert stdout.splitlines()[-1].endswith("and resumed: NOT byte-identical")


def test_doctor_cleans_up_when_it_is_interrupted(tmp_path: Path) -> None:
    process = doctor("killed_runs.MIN_KILLS = 10**6", tmp_path)  # it is still at it when the signal comes
    while process.poll() is None and not (tmp_path / "resume-proof" / "uninterrupted" / "run" / "run.json").exists():
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, stderr = outcome(process)
    assert (process.returncode, stderr.splitlines()[-1]) == (130, "interrupted")
    assert not (tmp_path / "resume-proof").exists()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # nobody of its group is left


def test_doctor_quotes_the_error_of_a_run_that_fails(tmp_path: Path) -> None:
    process = doctor("", tmp_path, TINY, "data.train=/no/such")
    stdout, stderr = outcome(process)
    assert (process.returncode, stdout) == (9, "")
    assert stderr.splitlines()[-1].startswith(
        "an uninterrupted run failed with exit code 4: data.train: /no/such: no such file"
    )


@pytest.mark.parametrize(("saving", "kills"), [(1, 2), (2, 2), (4, 4), (9, 5)])
def test_doctor_kills_until_one_kill_was_inside_a_save_or_was_tried_five_times(
    saving: int, kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """saving: the number of the run that is killed inside a save."""
    tried: list[float | None] = []

    class Instant:
        def __init__(self, root: Path, *_: object) -> None:
            self.root = self.folder = root
            root.mkdir()

        def run(self) -> float:
            return 8.0

        def kill(self, moment: float | None) -> tuple[float, str, bool]:
            tried.append(moment)
            return 1.0, "killed", len(tried) == saving

    monkeypatch.setenv("MINITF_CACHE", str(tmp_path))
    auto = {**dict.fromkeys(("device", "precision", "compile", "threads")), "micro_batch_size": 1}
    monkeypatch.setattr(
        killed_runs, "manifest", SimpleNamespace(read=lambda folder: SimpleNamespace(auto=auto, step=3))
    )
    monkeypatch.setattr(killed_runs, "ForkedRun", Instant)
    monkeypatch.setattr(killed_runs, "differences", lambda run, other: {})
    monkeypatch.setattr(killed_runs, "MIN_KILLS", 2)
    monkeypatch.setattr(killed_runs, "SECONDS", 0.0)
    proof = killed_runs.prove_resume(None, lambda line: None)  # type: ignore[arg-type]
    assert (len(proof.kills), proof.seconds, proof.steps) == (kills, 8.0, 3)
    after_a_save = [4.0, 2.0][: kills - saving] if saving <= kills else []
    assert tried == [None] * min(saving, kills) + after_a_save


def test_doctor_refuses_a_recipe_whose_runs_cannot_be_compared() -> None:
    for arguments, exit_code, message in (
        (("train.steps=2",), 2, "a recipe is used without --resume"),
        (("--resume", TINY, "train.time=5"), 2, "two runs of train.time end at other steps"),
        (("--resume", TINY, "train.seeds=3"), 2, "the recipe is a set of runs"),
        (("--resume", TINY, "data.split={folds: 2}"), 2, "the recipe is a set of runs"),
        (("--resume", TINY, "train.stepps=3"), 3, "did you mean train.steps?"),
        (("--resume", "quickstrat"), 2, "did you mean 'quickstart'?"),
    ):
        done = minitf("doctor", *arguments)
        assert (done.exit_code, done.stdout) == (exit_code, ""), done.stderr
        assert message in done.stderr


def test_doctor_without_fork_or_beside_another_one_is_9(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path))
    (tmp_path / "resume-proof").mkdir()
    held = try_lock(tmp_path / "resume-proof")
    assert held is not None
    refused = minitf("doctor", "--resume")
    assert (refused.exit_code, refused.stdout) == (9, "")
    assert (
        refused.stderr == f"{tmp_path / 'resume-proof'} is in use by another `doctor --resume`; wait until it is done\n"
    )
    os.close(held)
    monkeypatch.delattr(os, "fork")
    refused = minitf("doctor", "--resume")
    assert (refused.exit_code, refused.stderr.count("\n")) == (9, 1)
    assert "which this system cannot do; use Linux or macOS" in refused.stderr
