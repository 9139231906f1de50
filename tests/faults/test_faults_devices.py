"""Machines that lack, change or lose something: each row of the table of faults is a case whose id begins with the
row's number.
"""

import json
from pathlib import Path

import pytest
import torch
from commands import QUIET, TINY, change, content, minitf, told, trained

from mini_tf.run.disk import Disk
from mini_tf.training.machine import device
from mini_tf.training.training import EagerSteps

UNFINISHED = ("train.steps=8", "checkpoint.every_steps=4", "eval.every_steps=4")


@pytest.fixture(autouse=True)
def no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.fixture
def old_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that compute bf16 only by pretending."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "run", "train.steps=1")


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        pytest.param("cuda", "cpu", id="V1-no-gpu"),
        pytest.param("cuda:0", "cpu", id="V1-no-gpu-by-number"),
        pytest.param("mps", "cpu", id="V1-mps-on-linux"),
        pytest.param("cuda:2", "cpu, cuda:0, cuda:1", id="V1-number-too-high"),
    ],
)
def test_a_missing_device_is_refused_by_what_named_it_and_never_replaced(
    asked: str, there: str, run: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if "cuda:0" in there:
        request.getfixturevalue("old_gpus")
    before = content(run)
    for command, key in (
        (("pretrain", TINY, f"runtime.device={asked}", "-d", tmp_path / "new"), "runtime.device"),
        (("pretrain", TINY, "--device", asked, "-d", tmp_path / "new"), "runtime.device"),
        (("evaluate", run, "--device", asked), "--device"),
        (("generate", run, "Once", "--device", asked), "--device"),
        (("inspect", "attention", run, "Once", "--device", asked), "--device"),
    ):
        done = minitf(*command)
        assert (done.exit_code, done.stdout) == (9, ""), command
        last = told(done.stderr).splitlines()[-1]
        assert last == f"{key}: '{asked}' is not available on this machine; available: {there}; use {key}=auto"
    assert list(tmp_path.iterdir()) == []
    assert content(run) == before


@pytest.mark.parametrize(
    "found", [pytest.param(found, id=f"V1-{found}") for found in ("done", "stopped", "killed", "damaged")]
)
def test_a_start_that_is_refused_for_its_device_changes_nothing_of_the_run_that_stood(
    found: str, stood: Path, run: Path
) -> None:
    extend: tuple[str | Path, ...] = ()
    if found == "done":
        stood, extend = run, ("train.steps=1", "--extend", "10")
    else:
        change(stood / "run.json", state="running" if found == "killed" else "stopped")
        (stood / "checkpoints" / ".tmp-step-00000008").mkdir()  # of the start that was killed
        extend = UNFINISHED
    if found == "damaged":
        (stood / "checkpoints" / "step-00000004" / "model.safetensors").write_bytes(b"")
    before = sorted(stood.rglob("*")), content(stood)
    done = minitf("pretrain", TINY, *QUIET, *extend, "log.every_steps=7", "runtime.device=cuda", "-d", stood)
    assert (done.exit_code, done.stdout) == (9, "")
    assert "'cuda' is not available on this machine" in told(done.stderr).splitlines()[-1]
    assert (sorted(stood.rglob("*")), content(stood)) == before


@pytest.mark.parametrize("word", [pytest.param("gpu", id="V1-no-such-word")])
def test_a_word_that_is_no_device_is_refused(word: str, run: Path) -> None:
    assert minitf("evaluate", run, "--device", word).exit_code == 2
    assert minitf("pretrain", TINY, "--device", word).exit_code == 3


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        pytest.param(
            ("runtime.precision=fp16",),
            "runtime.precision: cpu does not support fp16; it supports fp32, bf16",
            id="V2-fp16-on-a-cpu",
        ),
        pytest.param(
            ("runtime.device=cuda:1", "runtime.precision=bf16"),
            "runtime.precision: cuda:1 does not support bf16; it supports fp32, fp16",
            id="V2-bf16-on-an-old-gpu",
        ),
    ],
)
@pytest.mark.usefixtures("old_gpus")
def test_a_precision_without_hardware_is_refused_with_what_there_is(
    overrides: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    done = minitf("pretrain", TINY, *QUIET, *overrides, "-d", tmp_path / "new")
    assert (done.exit_code, done.stdout) == (9, "")
    assert told(done.stderr).splitlines()[-1] == f"{words}; runtime.precision=auto"
    assert list(tmp_path.iterdir()) == []


def interrupted(run: Path, *overrides: str) -> None:
    """A run that ends after its checkpoint at step 4, since the disk then is full."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Disk, "free", lambda self, folder: 0 if (folder / "step-00000004").exists() else 1 << 40)
        assert minitf("pretrain", TINY, *overrides, *UNFINISHED, "-d", run).exit_code == 6


@pytest.fixture
def stood(tmp_path: Path) -> Path:
    """A run with a checkpoint of half its steps."""
    run = tmp_path / "run"
    interrupted(run, *QUIET)
    return run


@pytest.mark.parametrize(
    ("error", "exit_code", "words"),
    [
        pytest.param(
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
            6,
            "memory",
            id="V3-out-of-memory",
        ),
        pytest.param(
            torch.AcceleratorError("CUDA error: unspecified launch failure"), 9, "CUDA error", id="V5-device-lost"
        ),
    ],
)
def test_a_device_that_fails_ends_the_run_and_the_same_command_continues(
    error: Exception, exit_code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(tmp_path / "whole", *UNFINISHED)
    learn, steps = EagerSteps.gradients, iter(range(100))

    def failing(*given: object) -> object:
        if next(steps) == 6:
            raise error
        return learn(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(EagerSteps, "gradients", failing)
    run = tmp_path / "run"
    done = minitf("pretrain", TINY, *QUIET, *UNFINISHED, "-d", run)
    assert (done.exit_code, done.stdout) == (exit_code, "")
    assert words in told(done.stderr).splitlines()[-1]
    record = json.loads((run / "run.json").read_text())
    assert (record["state"], record["step"], record["auto"]["micro_batch_size"]) == ("failed", 4, 8)
    trained(run, *UNFINISHED)
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("exact", [pytest.param(False, id="V4-warned"), pytest.param(True, id="V4-refused")])
def test_a_run_that_goes_on_with_other_threads_says_so_or_is_refused(
    exact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ("runtime.device=cpu", "runtime.precision=fp32", "runtime.compile=false", "train.micro_batch_size=8")
    recipe = (*found, "log.samples=0", *(("checkpoint.resume=exact",) if exact else ()))
    run = tmp_path / "run"
    monkeypatch.setattr(device, "_tunable", lambda device, threads: frozenset())
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)  # a second one would only stand in others' way
    monkeypatch.setattr(device, "available_cores", lambda: 2)
    interrupted(run, *recipe)
    assert json.loads((run / "run.json").read_text())["auto"]["threads"] == 2
    monkeypatch.setattr(device, "available_cores", lambda: 1)
    before = content(run)
    done = minitf("pretrain", TINY, *recipe, *UNFINISHED, "-d", run)
    if exact:
        assert done.exit_code == 5
        assert f"{run} cannot be continued bit-exact: threads: 2 -> 1" in told(done.stderr).splitlines()[-1]
        assert content(run) == before
    else:
        assert done.exit_code == 0
        assert "warning: continuing, but not bit-exact: threads: 2 -> 1\n" in told(done.stderr)
