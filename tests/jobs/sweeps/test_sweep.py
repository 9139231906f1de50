"""Sweeps: ordinary runs of all settings, the same table however often they are stopped, and a record of failures."""

import fcntl
import json
import math
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import DEVNULL
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from commands import EXACT, TINY, Done, minitf, refused, trained
from hang import ending
from processes import Command

from mini_tf.jobs.sweeps import sweep as sweep_job
from mini_tf.jobs.sweeps.trials import FAILED, RunPart, Trial, TrialProcesses, TrialRun
from mini_tf.parallel import launching
from mini_tf.recipe.metrics import BestMetric
from mini_tf.run import manifest
from mini_tf.run.disk import Disk
from mini_tf.run.finding import is_locked, list_runs
from mini_tf.training.signals import StopRequest

SHORT = (*EXACT, "log.samples=0", "train.steps=9", "eval.tokens=300", "log.every_steps=1", "runtime.precision=fp32")
RATES = ("0.001", "0.003", "0.01", "0.03", "0.1", "0.0003", "0.2", "0.02", "0.05")


def popen(command: Sequence[str], env: dict[str, str], **streams: Any) -> Command:
    """A run in a fork of this process."""
    assert streams.pop("start_new_session")
    assert streams.pop("pass_fds")
    return Command(command[3:], env, **streams)


FORKS = SimpleNamespace(Popen=popen, DEVNULL=DEVNULL)


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "subprocess", FORKS)


def swept(folder: Path, *arguments: str) -> tuple[dict[str, Any], Done]:
    """The result of a sweep of the tiny recipe in a folder, and what was said."""
    done = minitf("sweep", TINY, *SHORT, *arguments, "-d", folder, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["result"], done


def table(result: dict[str, Any]) -> list[Any]:
    """All of a result but the path of the folder."""
    return [{**trial, "runs": [Path(run).name for run in trial["runs"]]} for trial in result["trials"]]


def files_of(folder: Path) -> dict[str, bytes]:
    """All that is promised to be the same."""
    kept = ("trial-*/metrics.jsonl", "trial-*/model.safetensors", "trial-*/resolved.yaml", "sweep.json")
    return {str(path.relative_to(folder)): path.read_bytes() for name in kept for path in sorted(folder.glob(name))}


def rates(values: Sequence[str]) -> str:
    return f"optimizer.lr=[{','.join(values)}]"


def test_trials_are_ordinary_runs_and_seeds_give_intervals(tmp_path: Path) -> None:
    result, _ = swept(tmp_path / "sweep", rates(RATES[:2]), "train.seed=3..4", "--jobs", "2")
    values = {}
    for n, rate in enumerate(RATES[:2], start=1):
        for seed in ("3", "4"):
            alone = trained(tmp_path / "alone" / rate / seed, *SHORT, f"optimizer.lr={rate}", f"train.seed={seed}")
            run = tmp_path / "sweep" / f"trial-{n:03d}-seed-{seed}"
            assert (run / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()
            assert manifest.read(run).run_id == manifest.read(alone).run_id
            values[rate, seed] = manifest.read(alone).metrics["val.loss"]
    for trial in result["trials"]:
        pair = [values[trial["settings"]["optimizer.lr"], seed] for seed in ("3", "4")]
        assert trial["values"] == pair
        assert trial["mean"] == pytest.approx(sum(pair) / 2)
        half = 12.7062 * abs(pair[0] - pair[1]) / 2  # t of one degree of freedom
        assert trial["interval"] == pytest.approx(half, rel=1e-4)
    assert [trial["mean"] for trial in result["trials"]] == sorted(trial["mean"] for trial in result["trials"])
    assert len(list_runs(tmp_path / "sweep")) == 4
    assert "<svg" in (tmp_path / "sweep" / "sweep.svg").read_text()
    best = yaml.safe_load((tmp_path / "sweep" / "best.yaml").read_text())
    assert f"{best['optimizer']['lr']:g}" == result["trials"][0]["settings"]["optimizer.lr"]
    again = trained(tmp_path / "best", recipe=tmp_path / "sweep" / "best.yaml")
    assert manifest.read(again).metrics["val.loss"] == result["trials"][0]["values"][0]


def test_halving_keeps_the_best_third_and_continues_them_exactly(tmp_path: Path) -> None:
    halved, _ = swept(tmp_path / "halved", rates(RATES), "--halving", "--jobs", "2")
    whole = {
        rate: trained(tmp_path / rate, *SHORT, f"optimizer.lr={rate}", "eval.every_steps=1") for rate in RATES
    }  # brute force: all of them to the end
    lines = {rate: (run / "metrics.jsonl").read_text().splitlines() for rate, run in whole.items()}
    losses = {rate: {(line := json.loads(text))["step"]: line["val.loss"] for text in of} for rate, of in lines.items()}
    alive, reached = [*RATES], dict.fromkeys(RATES, 9)
    for step in (1, 3):
        ranked = sorted(alive, key=lambda rate: losses[rate][step])
        alive = ranked[: len(alive) // 3]
        reached |= dict.fromkeys(ranked[len(alive) :], step)
    assert len(alive) == 1
    assert halved["trials"][0]["settings"] == {"optimizer.lr": alive[0]}
    for trial in halved["trials"]:
        rate, run = trial["settings"]["optimizer.lr"], Path(trial["runs"][0])
        assert manifest.read(run).step == reached[rate]
        assert trial["state"] == ("done" if rate in alive else f"stopped at step {reached[rate]}")
        assert (run / "metrics.jsonl").read_text().splitlines() == lines[rate][: reached[rate]]
        if rate in alive:
            assert (run / "model.safetensors").read_bytes() == (whole[rate] / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, "subprocess", FORKS)
        folder = tmp_path_factory.mktemp("whole") / "sweep"
        swept(folder, *INTERRUPTED)
        yield folder


INTERRUPTED = (rates(RATES[1:4]), "train.seed=[1,5]", "--halving", "--jobs", "2")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_sweep_ends_with_the_same_files(number: int, uninterrupted: Path, tmp_path: Path) -> None:
    folder, moments = tmp_path / "sweep", random.Random(int(number))
    arguments = ["sweep", TINY, *SHORT, *INTERRUPTED, "-d", str(folder), "-q"]
    before = None
    for kill in range(4):
        process = Command(arguments, {**os.environ})
        with ending():
            while process.poll() is None and len(list_runs(folder)) <= kill:
                time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.4))
        process.send_signal(number)
        assert process.wait() in (0, -number, 128 + number)
        if number == signal.SIGINT:  # its runs have saved and ended
            assert not any(is_locked(run) for run in list_runs(folder))
        done = {run: run.stat().st_mtime_ns for run in folder.glob("*/run.json") if '"done"' in run.read_text()}
        assert before is None or all(done[run] == changed for run, changed in before.items())  # not run again
        before = done
    result, _ = swept(folder, *INTERRUPTED)
    assert table(result) == table(swept(uninterrupted, *INTERRUPTED)[0])
    ours, theirs = files_of(folder), files_of(uninterrupted)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


def test_a_failed_trial_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    bounds = ("train.stop_above=[0.1,100]", "--jobs", "1")
    result, done = swept(tmp_path / "sweep", *bounds)
    assert [trial["state"] for trial in result["trials"]] == ["done", "failed"]
    assert result["trials"][1]["mean"] is None
    assert "trial-001: step 1: the loss is " in result["trials"][1]["errors"][0]
    assert f"failed: {result['trials'][1]['errors'][0]}; remove its folder" in done.stderr
    assert "\ntrial-001 (train.stop_above=0.1): failed: step 1: the loss is " in done.stderr
    changed = (tmp_path / "sweep" / "trial-001" / "run.json").stat().st_mtime_ns
    assert table(swept(tmp_path / "sweep", *bounds)[0]) == table(result)
    assert (tmp_path / "sweep" / "trial-001" / "run.json").stat().st_mtime_ns == changed
    failing = minitf("sweep", TINY, *SHORT, "train.stop_above=[0.1,0.2]", "-d", tmp_path / "failing")
    assert failing.exit_code == 7
    assert (
        failing.stdout
        == "trial      train.stop_above  val.loss  state\n"
        + "".join(f"trial-00{n}               0.{n}            failed\n" for n in (1, 2))
        + "no trial is done\n"
    )


def test_a_trial_that_fails_later_counts_where_it_was_compared_before(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", *SHORT, "eval.every_steps=3")
    run, metric = TrialRun(folder, "run", []), BestMetric()
    loss = json.loads((folder / "metrics.jsonl").read_text().splitlines()[2])["val.loss"]
    assert [run.score(metric, step) for step in (3, None)] == [loss, manifest.read(folder).metrics["val.loss"]]
    manifest.write(folder, manifest.read(folder).model_copy(update={"state": "diverged"}), Disk())
    assert [run.score(metric, step) for step in (3, 4, None)] == [loss, FAILED, FAILED]
    better, worse = Trial(1, {}, [], None, [FAILED]), Trial(2, {}, [], 3, [loss])
    assert sorted([better, worse], key=lambda trial: trial.rank) == [worse, better]


def test_no_trial_is_begun_that_would_not_end_in_time(tmp_path: Path) -> None:
    run = TrialRun(tmp_path / "run", "run", [TINY, *SHORT])
    with StopRequest() as stop:
        slow = TrialProcesses(1, 1000.0, stop, 2, step_seconds=200.0)
        assert not slow.train([RunPart(run, None, 9)], lambda run, seconds: None)
        assert not run.folder.exists()
        assert slow.train([RunPart(run, 2, 2)], lambda run, seconds: None)
    assert manifest.read(run.folder).step == 2


def test_a_budget_ends_a_sweep_and_the_same_command_continues(tmp_path: Path) -> None:
    arguments = (rates(RATES[:2]), "train.seed=4", "train.seeds=2", "--jobs", "2")  # seeds of a recipe, too
    result, done = swept(tmp_path / "sweep", *arguments, "--budget", "0.001s")
    assert (result["complete"], result["best"]) == (False, None)
    assert done.stderr.endswith("stopped by --budget: 2 trials left; the same command continues\n")
    assert list_runs(tmp_path / "sweep") == []
    result, _ = swept(tmp_path / "sweep", *arguments, "--budget", "2h")
    assert result["complete"]
    assert all(math.isfinite(trial["interval"]) for trial in result["trials"])
    runs = {run.name: manifest.read(run).decides for run in list_runs(tmp_path / "sweep")}
    assert [*runs] == [f"trial-00{n}-seed-{seed}" for n in (1, 2) for seed in (4, 5)]
    assert {name: (keys["train.seed"], keys["train.seeds"]) for name, keys in runs.items()} == {
        name: (int(name[-1]), 1) for name in runs
    }
    best = yaml.safe_load((tmp_path / "sweep" / "best.yaml").read_text())["train"]
    assert (best["seed"], best["seeds"]) == (4, 2)


def test_the_folder_of_a_sweep_names_its_runs(uninterrupted: Path) -> None:
    runs = list_runs(uninterrupted)
    words = f"is not a run folder, but has {len(runs)} of them; name one, such as {runs[0]}"
    refused(minitf("evaluate", uninterrupted), words, exit_code=5)


def test_wrong_sweeps_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sweep(*arguments: str) -> Done:
        return minitf("sweep", TINY, *SHORT, *arguments, "-d", tmp_path / "sweep")

    refused(sweep("optimizer.rate=[1,2]"), "optimizer.rate=1: no such key", exit_code=3)
    refused(sweep("optimizer.lr=[]"), "optimizer.lr=[]: no values to try", exit_code=2)
    refused(sweep("optimizer.lr=0.1"), "nothing to search", "'optimizer.lr=[0.01,0.02]'", exit_code=2)
    refused(sweep("optimizer.lr=1e-3..1e-1"), "--samples N", exit_code=2)
    refused(sweep("optimizer.lr=3e-3..1e-3"), "3e-3 is more than 1e-3", exit_code=2)
    refused(sweep("model.n_heads=[2,3]"), "n_heads", "divide", exit_code=3)
    refused(sweep("data.split={folds: 3}", rates(RATES[:2])), "cross-validation", exit_code=2)
    refused(sweep(rates(RATES[:2]), "--metric", "f1"), "next_token has no metric 'f1'", exit_code=3)
    refused(sweep(rates(RATES[:2]), "--budget", "soon"), "must be a time such as 90s or 30m", exit_code=2)
    refused(sweep(rates(RATES[:3]), "--halving", "eval.every_steps=null"), "eval.every_steps", exit_code=2)
    refused(sweep(rates(RATES[:2]), f"data.train={tmp_path / 'none.txt'}"), "no such file", exit_code=4)
    assert not (tmp_path / "sweep").exists()
    sweep(rates(RATES[:2]), "--budget", "0.001s")
    refused(sweep(rates(RATES[:3]), "--budget", "0.001s"), "is a sweep of other settings", "-n", exit_code=5)
    (other := tmp_path / "other.txt").write_text("other data\n\n" * 200 + "the last\n")
    refused(sweep(rates(RATES[:2]), f"data.train={other}"), "other settings: contents of data: ", exit_code=5)
    trained(tmp_path / "run", *SHORT)
    refused(minitf("sweep", TINY, rates(RATES[:2]), "-d", tmp_path / "run"), "not a sweep", exit_code=5)
    monkeypatch.setattr(sweep_job, "GRACE", 0.1)
    descriptor = os.open(tmp_path / "sweep", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        refused(sweep(rates(RATES[:2])), "is in use by another sweep", exit_code=5)
    finally:
        os.close(descriptor)
