"""Sweeps: ordinary runs of all settings, the same table however often they are stopped, and a record of failures."""

import fcntl
import json
import math
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
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
from mini_tf.jobs.sweeps.space import grid, read_space
from mini_tf.jobs.sweeps.sweep import Sweep, checked_base
from mini_tf.jobs.sweeps.trials import FAILED, RunPart, Trial, TrialProcesses, TrialRun
from mini_tf.parallel import launching
from mini_tf.recipe.metrics import BestMetric
from mini_tf.recipe.reading import read
from mini_tf.run import manifest
from mini_tf.run.disk import Disk
from mini_tf.run.finding import is_locked, list_runs
from mini_tf.system.errors import RecipeFault
from mini_tf.training.signals import StopRequest

SHORT = (*EXACT, "log.samples=0", "train.steps=9", "eval.tokens=300", "log.every_steps=1", "runtime.precision=fp32")
RATES = ("0.003", "0.01", "0.03")


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


HALVING = (rates(RATES), "train.seed=[1,5]", "--halving", "--jobs", "2")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The folder of a sweep, and its result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, "subprocess", FORKS)
        folder = tmp_path_factory.mktemp("whole") / "sweep"
        yield folder, swept(folder, *HALVING)[0]


def test_halving_continues_the_best_third_as_ordinary_runs(
    uninterrupted: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Seeds are compared by their mean, which has an interval."""
    folder, result = uninterrupted
    whole = {
        (rate, seed): trained(
            tmp_path / rate / seed, *SHORT, f"optimizer.lr={rate}", f"train.seed={seed}", "eval.every_steps=3"
        )
        for rate in RATES
        for seed in "15"
    }  # brute force: all of them to the end
    lines = {key: (run / "metrics.jsonl").read_text().splitlines() for key, run in whole.items()}
    losses = {key: json.loads(of[2])["val.loss"] for key, of in lines.items()}
    best, *others = sorted(RATES, key=lambda rate: losses[rate, "1"] + losses[rate, "5"])
    losses |= {(best, seed): manifest.read(whole[best, seed]).metrics["val.loss"] for seed in "15"}
    assert [trial["settings"]["optimizer.lr"] for trial in result["trials"]] == [best, *others]
    for trial in result["trials"]:
        rate = trial["settings"]["optimizer.lr"]
        step = 9 if rate == best else 3
        assert trial["state"] == ("done" if rate == best else "stopped at step 3")
        pair = [losses[rate, seed] for seed in "15"]
        assert trial["values"] == pair
        assert trial["mean"] == pytest.approx(sum(pair) / 2)
        half = 12.7062 * abs(pair[0] - pair[1]) / 2  # t of one degree of freedom
        assert trial["interval"] == pytest.approx(half, rel=1e-4)
        for seed, run in zip("15", map(Path, trial["runs"]), strict=True):
            assert run == folder / f"trial-{RATES.index(rate) + 1:03d}-seed-{seed}"
            assert manifest.read(run).step == step
            assert manifest.read(run).run_id == manifest.read(whole[rate, seed]).run_id
            assert (run / "metrics.jsonl").read_text().splitlines() == lines[rate, seed][:step]
            if rate == best:
                assert (run / "model.safetensors").read_bytes() == (
                    whole[rate, seed] / "model.safetensors"
                ).read_bytes()
    assert len(list_runs(folder)) == 6
    assert "<svg" in (folder / "sweep.svg").read_text()
    settings = [*SHORT, f"optimizer.lr={best}", "train.seed=1"]
    assert read(folder / "best.yaml").recipe == read(TINY, settings).recipe


class Known(TrialRun):
    """A run whose scores at each step are known: here its number, which are fewer the better."""

    reached = 0

    @property
    def record(self) -> Any:
        return SimpleNamespace(step=self.reached)

    def score(self, metric: BestMetric, step: int | None) -> float | None:
        return float(self.folder.name) if self.reached >= (step or 27) else None


class Recording:
    """Trains at once what it is given, and records that."""

    def __init__(self) -> None:
        self.parts: list[list[tuple[int, int | None, int]]] = []
        self.step_seconds = 0.0

    def train(self, parts: Sequence[RunPart], report: Any) -> None:
        self.parts.append([(int(part.run.folder.name[-3:]), part.stop_at, part.steps) for part in parts])
        for run, stop_at, _ in parts:
            run.reached = stop_at or 27  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("n", "every", "rungs"),
    [
        (2, 1, [(2, None, 27)]),
        (3, 1, [(3, 9, 9), (1, None, 18)]),
        (3, 10, [(3, 10, 10), (1, None, 17)]),
        (11, 1, [(11, 3, 3), (3, 9, 6), (1, None, 18)]),
    ],
)
def test_each_rung_trains_the_best_third_three_times_as_long(
    n: int, every: int, rungs: list[tuple[int, int | None, int]], tmp_path: Path
) -> None:
    """rungs: how many trials, to which step, and how many steps that are."""
    settings = [{"optimizer.lr": f"0.0{number + 1}"} for number in range(n)]
    space = read_space([TINY, "optimizer.lr=[0.1,0.2]", "train.steps=27", f"eval.every_steps={every}"])
    base, space = checked_base(space, settings, True, True)
    said: list[str] = []
    sweep = Sweep(space, base, settings, iter(()), True, tmp_path, None, SimpleNamespace(say=said.append))  # type: ignore[arg-type]
    sweep.trials = [Trial(number, chosen, [Known(Path(f"{number}"), "", [])]) for number, chosen in enumerate(settings)]
    processes = Recording()
    assert sweep._compare(sweep.trials[::-1], processes)  # type: ignore[arg-type]
    assert [sorted(parts) for parts in processes.parts] == [
        [(number, step, steps) for number in range(left)] for left, step, steps in rungs
    ]
    assert said == [
        f"step {step}: {further} of {left} trials are trained further"
        for (left, step, _), (further, *_) in pairwise(rungs)
    ]
    assert sweep.ranking[0].state == "done"


def test_a_sweep_knows_from_its_runs_how_long_a_step_takes(tmp_path: Path) -> None:
    for name, minutes in (("trial-001", 1.5), ("trial-002", 4.5)):
        folder = trained(tmp_path / name, *SHORT, "train.steps=3")
        record = manifest.read(folder)
        changed = {"metrics": record.metrics | {"minutes": minutes}}
        manifest.write(folder, record.model_copy(update=changed), Disk())
    space = read_space([TINY, "train.steps=9", "optimizer.lr=[0.1,0.2]"])
    first = next(search := grid(space))
    base, space = checked_base(space, first, True, False)
    processes = Recording()
    sweep = Sweep(space, base, first, search, False, tmp_path, None, SimpleNamespace(say=print))  # type: ignore[arg-type]
    sweep.run(processes)  # type: ignore[arg-type]
    assert processes.step_seconds == 60 * 4.5 / 3


def test_a_stopped_sweep_ends_with_the_same_files(uninterrupted: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Its launcher is killed, or stopped with its runs, when one run more has begun than before."""
    folder, moments = tmp_path / "sweep", random.Random(0)
    arguments = ["sweep", TINY, *SHORT, *HALVING, "-d", str(folder), "-q"]
    finished: dict[Path, int] = {}
    for interruption, number in enumerate((signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGINT)):
        process = Command(arguments, {**os.environ})
        with ending():
            while process.poll() is None and len(list_runs(folder)) <= interruption:
                time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.4))
        process.send_signal(number)
        assert process.wait() in (0, -number, 128 + number)
        if number == signal.SIGINT:  # its runs have saved and ended
            assert not any(is_locked(run) for run in list_runs(folder))
        now = {run: run.stat().st_mtime_ns for run in folder.glob("*/run.json") if '"done"' in run.read_text()}
        assert all(now[run] == changed for run, changed in finished.items())  # not run again
        finished = now
    assert table(swept(folder, *HALVING)[0]) == table(uninterrupted[1])
    ours, theirs = files_of(folder), files_of(uninterrupted[0])
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


def test_the_folder_of_a_sweep_names_its_runs(uninterrupted: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = uninterrupted
    words = f"is not a run folder, but has 6 of them; name one, such as {list_runs(folder)[0]}"
    refused(minitf("evaluate", folder), words, exit_code=5)


def test_only_samples_may_be_no_recipe_and_not_all_of_them() -> None:
    space = read_space([TINY, "model.n_heads=[2,3]"])
    good, bad = next(grid(space))
    assert checked_base(space, [bad, good], False, False)[0].recipe.model.n_heads == 2
    for settings, strict in (([good, bad], True), ([bad], False)):
        with pytest.raises(RecipeFault, match="divide"):
            checked_base(space, settings, strict, False)


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
