"""`minitf sweep`: search over settings of a recipe, in a folder of ordinary runs."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mini_tf.cli.pretrain import NAME, OUT_DIR
from mini_tf.cli.terminal.completion import recipe_arguments
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import RUNTIME_DEVICE
from mini_tf.cli.terminal.processes import refuse_stdin
from mini_tf.recipe.values import SECONDS, real_number
from mini_tf.system.errors import UsageFault
from mini_tf.system.numbers import counted
from mini_tf.system.progress import show_progress

if TYPE_CHECKING:
    from mini_tf.jobs.sweeps.sweep import Sweep

RECIPE = typer.Argument(
    metavar="[RECIPE] KEY=[A,B,...] KEY=LOW..HIGH ...",
    help="A recipe, data and settings as of pretrain, and keys with a list or a range of values.",
    autocompletion=recipe_arguments,
)
SAMPLES = typer.Option(
    "--samples", min=1, max=10_000, metavar="N", help="Try N samples of the values.", show_default="all combinations"
)
SAMPLER = typer.Option("--sampler", metavar="random|tpe", help="How they are sampled; tpe learns from results.")
HALVING = typer.Option("--halving", help="Successive halving: a third of the trials goes on at each of several steps.")
BUDGET = typer.Option("--budget", metavar="TIME", help="Time limit of this command, such as 30m.", show_default="none")
JOBS = typer.Option(
    "--jobs", min=1, metavar="N", help="Runs at a time.", show_default="as many as CPU cores; 1 on a GPU"
)
METRIC = typer.Option("--metric", metavar="NAME", help="The metric to compare: eval.best.", show_default="the recipe's")
SAMPLERS = Literal["random", "tpe"]


@command
def sweep(
    console: Console,
    arguments: Annotated[list[str], RECIPE],
    samples: Annotated[int | None, SAMPLES] = None,
    sampler: Annotated[SAMPLERS | None, SAMPLER] = None,
    halving: Annotated[bool, HALVING] = False,
    budget: Annotated[str | None, BUDGET] = None,
    jobs: Annotated[int | None, JOBS] = None,
    metric: Annotated[str | None, METRIC] = None,
    out_dir: Annotated[Path | None, OUT_DIR] = None,
    name: Annotated[str | None, NAME] = None,
    device: RUNTIME_DEVICE = None,
) -> int:
    seconds = _seconds(budget)
    if sampler is not None and samples is None:
        raise UsageFault(f"--sampler {sampler}: of how many samples?", hint="add --samples N")
    if sampler == "tpe" and halving:
        raise UsageFault(
            "--halving compares all trials at once, --sampler tpe one round after another", hint="give one"
        )
    refuse_stdin(2, bool({"data.train=-", "data.val=-"} & {*arguments}), "write the text to a file")
    keys = {"eval.best": metric and metric.removeprefix("val."), "runtime.device": device}
    arguments = [*arguments, *(f"{key}={value}" for key, value in keys.items() if value is not None)]
    with show_progress("loading PyTorch and the recipe"):
        from mini_tf.jobs.sweeps.space import grid, read_space, sampled
        from mini_tf.jobs.sweeps.sweep import Sweep, checked_base, opened
        from mini_tf.jobs.sweeps.trials import TrialProcesses, machine_shares
        from mini_tf.run.location import RunLocation
        from mini_tf.training.signals import StopRequest

        space = read_space(arguments)
        search = grid(space) if samples is None else sampled(space, samples, sampler or "random")
        first = next(search)
        base, space = checked_base(space, first, samples is None, halving)
    jobs, threads = machine_shares(base.recipe.runtime, len(first) * len(space.seed_arguments), jobs)
    asked = {"sweep": space.as_json, "sampler": samples and (sampler or "random"), "halving": halving and len(first)}
    location = RunLocation(out_dir, name)
    with opened(location, base, asked, threads, console) as (folder, threads, lock), StopRequest(console.say) as stop:
        sweep_ = Sweep(space, base, first, search, halving, folder, threads, console)
        size = counted(samples or len(first), "trial") + (f" of {len(space.seeds)} seeds" if space.seeds else "")
        each = f", {counted(threads, 'thread')} each" if threads else ""
        console.say(f"{size} in {folder}, {jobs} at a time{each}")
        sweep_.run(TrialProcesses(jobs, seconds, stop, lock))
        _show(console, sweep_)
        if not sweep_.complete:
            left = (samples or len(first)) - sum(trial.state != "unfinished" for trial in sweep_.trials)
            why = stop.signal.name if stop.signal else "--budget" if budget else "a signal to one of its runs"
            console.say(f"stopped by {why}: {counted(left, 'trial')} left; the same command continues")
    if sweep_.complete and sweep_.best is None:
        raise sweep_.failure
    return stop.exit_code


def _seconds(budget: str | None) -> float:
    """The time limit; UsageFault if it is not a time."""
    seconds = math.inf if budget is None else real_number(budget, [SECONDS])
    if not seconds or seconds < 0:
        raise UsageFault(f"--budget {budget!r}: must be a time such as 90s or 30m")
    return seconds


def _show(console: Console, search: "Sweep") -> None:
    """Print the table and the best recipe, and write best.yaml and the picture."""
    from mini_tf.drawing.curves import draw_searched
    from mini_tf.drawing.terminal import table
    from mini_tf.jobs.messages import quoted

    metric, trials, best = f"val.{search.metric.name}", search.ranking, search.best
    means = [trial.mean(search.metric) for trial in trials]
    rows = []
    for trial, mean in zip(trials, means, strict=True):
        cell = "" if mean is None else f"{mean.mean:.4f}" + (f" ± {mean.half:.4f}" if mean.half else "")
        rows.append([trial.name, *trial.settings.values(), cell, trial.state])
    console.show(table, ["trial", *search.space.searched, metric, "state"], rows)
    for error in (error for trial in trials for error in trial.errors):
        console.say(f"failed: {error}; remove its folder to train it again")
    chosen, measured = "no trial is done", None
    if best is not None and means[0] is not None:
        points = [
            (trial.settings, mean.mean, mean.half)
            for trial, mean in zip(trials, means, strict=True)
            if mean is not None and trial.step == best.step
        ]
        seeds = f", mean and interval over {len(best.runs)} seeds" if len(best.runs) > 1 else ""
        search.write("sweep.svg", draw_searched(points, metric, f"{search.folder.name}: {metric}{seeds}", "svg"))
        path, measured = search.write_best(best, means[0]), means[0].mean
        chosen = " ".join(["best:" if search.complete else "best so far:", best.name, *best.overrides])
        console.say(f"next: minitf pretrain {quoted(path)}; minitf runs compare {quoted(search.folder)}/trial-*")
    console.output(chosen, run=search.folder, metrics={metric: measured}, result=search.to_json())
