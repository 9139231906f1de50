"""`minitf pretrain` and `minitf finetune`: train a model, from scratch or on a task; with the same options."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mini_tf.cli.terminal.completion import recipe_arguments
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.gate_checks import check_gates, parse_gates, refuse_missed
from mini_tf.cli.terminal.options import (
    GATES,
    RECIPE,
    RECIPE_HELP,
    RUNTIME_DEVICE,
    RUNTIME_NPROC,
    check_option,
    folder_option,
)
from mini_tf.cli.terminal.processes import group_of, launched, leave_to_rank_0, refuse_stdin
from mini_tf.cli.terminal.streams import has_unread_input
from mini_tf.system.errors import UsageFault
from mini_tf.system.progress import show_progress

if TYPE_CHECKING:
    from mini_tf.data.datasets import TokenizedData
    from mini_tf.jobs.assembling import Options
    from mini_tf.recipe.metrics import Gate
    from mini_tf.recipe.reading import Resolved

OUT_DIR = folder_option(
    "-d", "--out-dir", "--output-dir", metavar="DIR", help="The run folder; with --name, its parent."
)
NAME = folder_option(
    "-n", "--name", metavar="NAME", help="Name of the run in outputs/.", show_default="recipe and hash"
)
FRESH = folder_option("--fresh", help="Start a new run beside an existing one of this name.")
EXTEND = folder_option("--extend", min=1, metavar="N", help="Train a finished run for N more steps.")
STOP_AT = folder_option("--stop-at", min=1, metavar="STEP", help="Stop after this step; continue without this option.")
DRY_RUN = typer.Option("--dry-run", help="Read the data, build the model, print the plan; train nothing.")
PRINT_CONFIG = typer.Option("--print-config", help="Print the complete recipe and exit.")
TENSORBOARD = typer.Option("--tensorboard", help="Also write TensorBoard event files.")
UNTIL = check_option("--until", metavar="METRIC<=X", help="End with the first evaluation that meets this: eval.until.")
EXPECT = check_option("--expect", help="Check the shipped recipe's own `expect` section.")


TASK_RECIPE = Annotated[
    list[str] | None,
    typer.Argument(metavar="RECIPE [KEY=VALUE ...]", help=RECIPE_HELP, autocompletion=recipe_arguments),
]


def _training_command(command_name: Literal["pretrain", "finetune"], recipe: Any) -> Callable[..., None]:
    """A training command for Typer. recipe: its argument."""

    def body(
        console: Console,
        arguments: RECIPE = None,
        out_dir: Annotated[Path | None, OUT_DIR] = None,
        name: Annotated[str | None, NAME] = None,
        fresh: Annotated[bool, FRESH] = False,
        extend: Annotated[int | None, EXTEND] = None,
        stop_at: Annotated[int | None, STOP_AT] = None,
        device: RUNTIME_DEVICE = None,
        dry_run: Annotated[bool, DRY_RUN] = False,
        print_config: Annotated[bool, PRINT_CONFIG] = False,
        tensorboard: Annotated[bool, TENSORBOARD] = False,
        nproc: RUNTIME_NPROC = 1,
        until: Annotated[str | None, UNTIL] = None,
        gates: GATES = None,
        expect: Annotated[bool, EXPECT] = False,
    ) -> int:
        reads_stdin = bool({"-", "data.train=-", "data.val=-"} & {*(arguments or ())})
        refuse_stdin(nproc, reads_stdin, "write the text to a file")
        exit_code = None if dry_run or print_config else launched(console, nproc)
        if exit_code is not None:
            return exit_code
        with show_progress("loading PyTorch and the recipe"):
            from mini_tf.recipe.corpora import find_corpus
            from mini_tf.run.identity import resolve_command
            from mini_tf.run.task_arguments import check_task_arguments, command_warning

            check_arguments = partial(check_task_arguments, words=sys.argv[2:]) if command_name == "finetune" else None
            keys = {"runtime.device": device, "eval.until": until}
            resolved, folder = resolve_command(arguments or [], keys, out_dir, name, fresh, check_arguments)
        bounds = _gates(resolved, gates or [], expect)
        if print_config:
            from mini_tf.recipe.reading import dump

            console.output(dump(resolved.recipe).rstrip(), result=resolved.recipe.model_dump(mode="json"))
            return 0
        if warning := command_warning(console.command, resolved, fresh or bool(name or out_dir)):
            console.warn(warning)
        if console.command == "pretrain" and find_corpus(resolved.recipe.data.train) and has_unread_input():
            console.say(f"stdin is not read; `{shlex.join(['minitf', *sys.argv[1:], '-'])}` trains on it")
        from mini_tf.jobs.assembling import Options
        from mini_tf.run.location import RunLocation

        def check(data: "TokenizedData") -> None:
            check_gates(bounds, "training", resolved.recipe, None if data.labels is None else data.labels.names)

        location = RunLocation(folder, name, fresh, is_run=folder != out_dir)
        location.check()
        options = Options(location, extend, tuple(sys.argv), tensorboard, check, stop_at=stop_at)
        return _estimate(console, resolved) if dry_run else _train(console, resolved, options, bounds)

    body.__name__ = command_name
    body.__annotations__["arguments"] = recipe
    return command(body)


def _gates(resolved: "Resolved", gates: list[str], expect: bool) -> "list[Gate]":
    """All metric bounds of the command line and of `expect`; UsageFault for a metric that this run never computes."""
    bounds = parse_gates(gates)
    if expect:
        way = "use --assert 'val.loss<1.9'"
        if not resolved.shipped:
            raise UsageFault("--expect works only with a shipped recipe without overrides (except --device)", hint=way)
        if not resolved.recipe.expect:
            raise UsageFault(f"--expect: the recipe {resolved.name} has no `expect`", hint=way)
        bounds += parse_gates([metric + comparison for metric, comparison in resolved.recipe.expect.items()])
    check_gates(bounds, "training", resolved.recipe)
    return bounds


def _train(console: Console, resolved: "Resolved", options: "Options", bounds: "list[Gate]") -> int:
    """Train, print the run folder, and check the metric bounds."""
    from mini_tf.jobs.baselines import NAME as NAME_OF_BASELINE
    from mini_tf.jobs.run_sets import train
    from mini_tf.run import manifest
    from mini_tf.training.machine.device import on_gpu

    runtime = resolved.recipe.runtime
    with group_of(runtime.timeout, on_gpu(runtime)) as group:
        result = train(resolved, replace(options, group=group), console)
    leave_to_rank_0(group, result.exit_code)
    baseline = manifest.read(result.folder).baseline
    metrics = {**result.metrics, **({} if baseline is None else {NAME_OF_BASELINE: baseline})}
    console.output(str(result.folder), run=result.folder, metrics=metrics)
    if result.exit_code == 0:
        refuse_missed(bounds, result.metrics)
    return result.exit_code


def _estimate(console: Console, resolved: "Resolved") -> int:
    """Print what the run would cost, of which nothing is saved."""
    from mini_tf.cost.run_cost import estimate
    from mini_tf.training.machine.device import on_gpu

    runtime = resolved.recipe.runtime
    with group_of(runtime.timeout, on_gpu(runtime)) as group:
        cost = estimate(resolved.recipe, console)
        runs = f" for {cost.run_set}" if cost.run_set else ""
        console.say(
            f"estimate: {cost.timing.seconds * 1000:.0f} ms per step, {cost.total / 60:.1f} minutes in total{runs};"
            " nothing was saved"
        )
    leave_to_rank_0(group)
    console.output(metrics=cost.metrics)
    return 0


pretrain = _training_command("pretrain", RECIPE)
finetune = _training_command("finetune", TASK_RECIPE)
