"""A sweep: trials of settings in a folder of ordinary runs, compared by the metric of `eval.best`.

Which trials there are, and which are trained further, is a function of the space and of what the run folders say, so
the same command continues a sweep that was stopped or killed. With `halving` all trials are trained for a part of the
steps, the best third of them for three times as many, and so on (successive halving: Jamieson and Talwalkar 2016,
arXiv:1502.07943). A run goes on where it was, with the schedule of all its steps; Optuna's pruner cannot do this: it
ends trials for good, by what has been reported so far, which depends on the order in which processes are done.
"""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mini_tf.jobs.assembling import Options, identify
from mini_tf.jobs.messages import Reporter
from mini_tf.jobs.sweeps.space import Chosen, Search, Space
from mini_tf.jobs.sweeps.trials import FAILED, POLL, RunPart, Trial, TrialProcesses, TrialRun
from mini_tf.recipe.arguments import split_arguments
from mini_tf.recipe.metrics import BestMetric, best_metric
from mini_tf.recipe.reading import Resolved, dump
from mini_tf.recipe.values import one_line
from mini_tf.run import disk, manifest
from mini_tf.run.disk import TEMPORARY, Disk, make_folder, storage_errors
from mini_tf.run.finding import OUTPUTS, is_run, try_lock
from mini_tf.run.identity import differences, resolve
from mini_tf.run.location import RunLocation, explicit_folder
from mini_tf.scores.intervals import Mean
from mini_tf.system import strict_json
from mini_tf.system.cache import hash_of
from mini_tf.system.errors import RecipeFault, RunFault, UsageFault
from mini_tf.system.processes import WorkerFault
from mini_tf.system.safe_files import read_small_file

NAME = "sweep.json"
GRACE = 10.0
"""Seconds to wait for the runs of a sweep that was killed, which save."""
FACTOR = 3
"""Of successive halving: the share of trials that go on, and of the steps."""


@dataclass
class Sweep:
    """base: the recipe of its first trial. first: the settings that `search` has yielded.

    halving: whether trials are compared before their ends. threads: of each run; None: as the recipe says.
    """

    space: Space
    base: Resolved
    first: Sequence[Chosen]
    search: Search
    halving: bool
    folder: Path
    threads: int | None
    reporter: Reporter
    trials: list[Trial] = field(default_factory=list)
    complete: bool = False

    @property
    def metric(self) -> BestMetric:
        return best_metric(self.base.recipe.objective, self.base.recipe.eval)

    @property
    def steps(self) -> int:
        """Of a run; 1 if the recipe does not say."""
        return self.base.recipe.train.known_steps or 1

    @property
    def rungs(self) -> list[int]:
        """The steps at which trials are compared, each FACTOR times as many as the one before; without the end."""
        if not self.halving:
            return []
        distinct = {json.dumps(settings) for settings in self.first}
        n_rungs = int(math.log(len(distinct), FACTOR) + 1e-9)
        every = self.base.recipe.eval.every_steps
        unit = every if isinstance(every, int) else 1
        first = math.ceil(self.steps / FACTOR**n_rungs / unit) * unit
        return [step for n in range(n_rungs) if (step := first * FACTOR**n) < self.steps]

    def run(self, processes: TrialProcesses) -> None:
        """Search to the end, or until the time limit or a stop signal: `complete` says which."""
        done = [manifest.read(path) for path in self.folder.glob("trial-*") if is_run(path)]
        minutes = [(record.metrics.get("minutes") or 0.0) / min(self.steps, max(record.step, 1)) for record in done]
        processes.step_seconds = 60 * max(minutes, default=0.0)
        settings = self.first
        while True:
            trials = [self._trial(chosen) for chosen in settings]
            if not self._compare([*{trial.number: trial for trial in trials}.values()], processes):
                return
            try:
                settings = self.search.send([trial.score for trial in trials])
            except StopIteration:
                self.complete = True
                return

    def _trial(self, settings: Chosen) -> Trial:
        """The trial with these settings; a new one if there is none."""
        known = next((trial for trial in self.trials if trial.settings == settings), None)
        if known is None:
            known = Trial(len(self.trials) + 1, settings, [])
            known.runs = [self._run(known, *seed) for seed in self.space.seed_arguments]
            self.trials.append(known)
        return known

    def _run(self, trial: Trial, *seed: str) -> TrialRun:
        folder = self.folder / "-seed-".join([trial.name, *(argument.partition("=")[2] for argument in seed[:1])])
        more, fault = [*seed], None
        try:
            resolved_of(self.space.arguments(trial.settings, *seed))
        except RecipeFault as error:  # of a sample
            fault = error
        if self.threads is not None:
            more.append(f"runtime.threads={self.threads}")
        if self.rungs and self.base.recipe.eval.every_steps == "auto":
            more.append(f"eval.every_steps={self.rungs[0]}")
        title = f"{folder.name} ({', '.join([*trial.overrides, *seed[:1]])})"
        return TrialRun(folder, title, self.space.arguments(trial.settings, *more), fault)

    def _compare(self, trials: Sequence[Trial], processes: TrialProcesses) -> bool:
        """Train the trials to each rung, and the best ones to the end; False if they did not come so far."""
        for step in (*self.rungs, None):
            runs = [run for trial in trials for run in trial.runs if run.score(self.metric, step) is None]
            parts = [RunPart(run, step, max(1, (step or self.steps) - _step_of(run))) for run in runs]
            processes.train(parts, partial(self._report, step))
            compared = [trial.compare_at(self.metric, step) for trial in trials]
            if not all(compared):
                return False
            if step is not None:
                ranked, n = sorted(trials, key=lambda trial: trial.score), max(1, len(trials) // FACTOR)
                for trial in ranked[n:]:
                    trial.stopped = True
                trials = [trial for trial in ranked[:n] if trial.score < FAILED]
                self.reporter.say(f"step {step}: {len(trials)} of {len(ranked)} trials are trained further")
        return True

    def _report(self, step: int | None, run: TrialRun, seconds: float) -> None:
        """Say what a run that ended has reached."""
        score, metric = run.score(self.metric, step), f"val.{self.metric.name}"
        if score is None:  # not finite, or of another metric
            run.fault = RunFault(f"no {metric} at step {step}")
        result = f"{metric} {self.metric.value(score or 0.0):.4f} at step {step or _step_of(run)}"
        if score in (FAILED, None):
            result = f"failed: {run.error or f'no {metric}'}"
        self.reporter.say(f"{run.title}: {result}, {seconds:.0f} s")

    @property
    def ranking(self) -> list[Trial]:
        """The trials, the best one first."""
        return sorted(self.trials, key=lambda trial: trial.rank)

    @property
    def best(self) -> Trial | None:
        best = self.ranking[:1]
        return best[0] if best and best[0].score < FAILED else None

    @property
    def failure(self) -> WorkerFault:
        """The error of the first trial, where all failed."""
        run = self.trials[0].runs[0]
        code = run.fault and run.fault.exit_code if run.record is None else run.record.exit_code
        return WorkerFault(code or 1, f"all trials failed; {run.folder.name}: {run.error}")

    def write_best(self, best: Trial, mean: Mean) -> Path:
        """Write the recipe of the best trial, which `minitf pretrain` takes."""
        seeds = f" ± {mean.half:.4f} over {mean.n} seeds" if mean.half is not None else ""
        measured = f"val.{self.metric.name} {mean.mean:.4f}{seeds}"
        title = one_line(f"{best.name} of {self.folder.name}: {' '.join(best.overrides)}; {measured}")
        seed = [] if self.space.of_recipe else self.space.seed_arguments[0]
        recipe = resolved_of(self.space.arguments(best.settings, *seed)).recipe
        return self.write("best.yaml", f"# {title}\n{dump(recipe)}".encode())

    def write(self, name: str, content: bytes) -> Path:
        """Write a file of the folder."""
        with storage_errors(f"writing {name}"):
            disk.replace(Disk(), self.folder / name, content)
        return self.folder / name

    def to_json(self) -> dict[str, Any]:
        return {
            "metric": f"val.{self.metric.name}",
            "lower_is_better": self.metric.lower_is_better,
            "complete": self.complete,
            "best": None if self.best is None else self.best.name,
            "trials": [trial.to_json(self.metric) for trial in self.ranking],
        }


def _step_of(run: TrialRun) -> int:
    return 0 if run.record is None else run.record.step


def resolved_of(arguments: Sequence[str]) -> Resolved:
    """The recipe of the arguments of `minitf pretrain`."""
    return resolve(*split_arguments(arguments))


def checked_base(space: Space, settings: Sequence[Chosen], strict: bool, halving: bool) -> tuple[Resolved, Space]:
    """The recipe of the first settings that give one, and the space, with the seeds of that recipe if it has several.

    strict: RecipeFault for any settings that do not give one; else only if none do, since samples cannot be chosen.
    Raises UsageFault if the recipe cannot be searched.
    """
    faults, recipes = list[RecipeFault](), list[Resolved]()
    for chosen in settings:
        try:
            recipes += [resolved_of(space.arguments(chosen, *seed)) for seed in space.seed_arguments]
        except RecipeFault as fault:
            faults.append(fault)
        if recipes and not strict:
            break
    if faults and (strict or not recipes):
        raise faults[0]
    base, train = recipes[0], recipes[0].recipe.train
    if train.seeds > 1:
        seeds = space.seeds or [str(train.seed + n) for n in range(train.seeds)]
        space = replace(space, seeds=seeds, of_recipe=True)
    if base.recipe.data.split.is_set:
        raise UsageFault("a sweep of a cross-validation", hint="data.split=10% takes one validation split")
    if halving and (train.known_steps is None or base.recipe.eval.every_steps is None):
        hint = "give train.steps and eval.every_steps"
        raise UsageFault("--halving compares at evaluations after a part of the steps, which are not known", hint=hint)
    return base, space


@contextmanager
def opened(
    location: RunLocation, base: Resolved, asked: Mapping[str, Any], threads: int | None, reporter: Reporter
) -> Iterator[tuple[Path, int | None, int]]:
    """The folder of a sweep, the threads of its runs, which are those of its first start, and the folder's lock.

    asked: what was asked for, beside the recipe. RunFault if it is in use, or has another sweep or one of other data.
    """
    location.check()
    identity, _ = identify(base, Options(), reporter)  # bad data leave no folder, and the runs find them tokenized
    contents = {f"contents of {name}": sha256 for name, sha256 in identity.hashes.items()}
    decides = json.loads(json.dumps({**identity.not_default, **contents, **asked}))
    folder = explicit_folder(location) or OUTPUTS.absolute() / f"{base.name}-sweep-{hash_of(decides)[:6]}"
    with storage_errors(f"preparing {folder}"):
        make_folder(Disk(), folder)
    ends = time.monotonic() + GRACE
    while (lock := try_lock(folder)) is None:
        if time.monotonic() > ends:
            raise RunFault(f"{folder} is in use by another sweep", hint="wait until it ends", where=[str(folder)])
        time.sleep(POLL)
    try:
        path = folder / NAME
        if path.exists():
            try:
                known = strict_json.read(read_small_file(path))
                before, threads = dict(known["decides"]), known["threads"]
            except (ValueError, KeyError, TypeError) as error:
                raise RunFault(f"{path} is damaged: {error}", where=[str(path)]) from error
            if changed := differences(before, decides):
                hint = "choose another name with -n, or remove the folder"
                raise RunFault(f"{folder} is a sweep of other settings: {'; '.join(changed[:5])}", hint=hint)
        elif set(os.listdir(folder)) - {TEMPORARY + NAME}:
            raise RunFault(f"{folder} is not empty and not a sweep", hint="choose another name with -n")
        else:
            with storage_errors(f"writing {NAME}"):
                disk.replace(Disk(), path, json.dumps({"decides": decides, "threads": threads}, indent=1).encode())
        yield folder, threads, lock
    finally:
        os.close(lock)
