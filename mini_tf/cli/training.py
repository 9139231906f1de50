"""What the commands that train have in common: their options, and the way from a recipe to a run folder."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.figures import check_gates
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import CHECKS, GATES, RECIPE, RUN_FOLDER
from mini_tf.system.progress import show_progress

if TYPE_CHECKING:
    from mini_tf.data.datasets import TokenizedData
    from mini_tf.jobs.pretrain import Options
    from mini_tf.recipe.gates import Gate
    from mini_tf.recipe.reading import Resolved

FOLDER = ("-d", "--out-dir", "--output-dir")


def training_command(
    name: str, summary: str, recipe: Any = RECIPE, without_recipe: Callable[[list[str]], None] = lambda overrides: None
) -> Callable[..., None]:
    """A command that trains, as Typer takes it. `recipe` declares its argument; `without_recipe` may refuse to go on without one."""

    def body(
        console: Console,
        arguments: RECIPE = None,
        out_dir: Annotated[
            Path | None, typer.Option(*FOLDER, help="The run's folder, or with --name its parent.", rich_help_panel=RUN_FOLDER)
        ] = None,
        name: Annotated[str | None, typer.Option("-n", "--name", help="The run's name in outputs.", rich_help_panel=RUN_FOLDER)] = None,
        fresh: Annotated[bool, typer.Option("--fresh", help="Start over beside an existing run.", rich_help_panel=RUN_FOLDER)] = False,
        extend: Annotated[
            int | None, typer.Option("--extend", min=1, metavar="N", help="Train a finished run N more steps.", rich_help_panel=RUN_FOLDER)
        ] = None,
        device: Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")] = None,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Read the data, build the model, print an estimate.")] = False,
        print_config: Annotated[bool, typer.Option("--print-config", help="Print the complete recipe and exit.")] = False,
        tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write event files for TensorBoard.")] = False,
        gates: GATES = None,
        expect: Annotated[
            bool, typer.Option("--expect", help="Check the recipe's own `expect`; only as shipped.", rich_help_panel=CHECKS)
        ] = False,
    ) -> int:
        with show_progress("loading PyTorch and the recipe"):
            resolved = _resolve(arguments or [], device, without_recipe, out_dir if name is None else (out_dir or Path("outputs")) / name)
        held_to = _gates(resolved, gates or [], expect)
        if print_config:
            from mini_tf.recipe.reading import dump

            console.answer(dump(resolved.recipe).rstrip(), result=resolved.recipe.model_dump(mode="json"))
            return 0
        if unusual := _unusual(console.command, resolved):
            console.warn(unusual)
        from mini_tf.jobs.pretrain import Options
        from mini_tf.run.opening import RunLocation

        def check(text: "TokenizedData") -> None:
            check_gates(held_to, "training", resolved.recipe, None if text.labels is None else text.labels.names)

        options = Options(RunLocation(out_dir, name, fresh), extend, dry_run, tuple(sys.argv), tensorboard, check)
        return _train(console, resolved, options, held_to)

    body.__name__, body.__doc__ = name, summary
    body.__annotations__["arguments"] = recipe
    return command(body)


def _unusual(command: str, resolved: "Resolved") -> str | None:
    """What is to be said where a recipe is given to the command that people do not mean it for; both do the same."""
    recipe, shown = resolved.recipe, resolved.name
    if command == "finetune" and not recipe.objective.TASK and recipe.model.init_from is None:
        return f"{shown} trains from scratch, as `minitf pretrain {shown}` does; model.init_from=RUN starts from the weights of a run"
    if command == "pretrain" and recipe.objective.TASK and not recipe.objective.PREDICTS_TOKENS:
        return f"{shown} is a recipe for a task, whose command is `minitf finetune {shown}`; this trains the same"
    return None


def _resolve(arguments: list[str], device: str | None, without_recipe: Callable[[list[str]], None], place: Path | None) -> "Resolved":
    """The recipe that the arguments give; place: the folder of the run that may be continued, where it is named."""
    from mini_tf.recipe.arguments import split_arguments
    from mini_tf.run.kind_sources import resolve

    recipe, overrides = split_arguments(arguments)
    if recipe is None:
        without_recipe(overrides)
    return resolve(recipe, overrides if device is None else [*overrides, f"runtime.device={device}"], place)


def _gates(resolved: "Resolved", gates: list[str], expect: bool) -> "list[Gate]":
    """What the run is held to; UsageFault where it can never be met."""
    from mini_tf.recipe.gates import Gate
    from mini_tf.system.errors import UsageFault

    held_to = [Gate.parse(gate) for gate in gates]
    if expect:
        way = "use --assert 'val.loss<1.9'"
        if not resolved.shipped:
            raise UsageFault("--expect holds only for a recipe as shipped, without overrides (--device aside)", hint=way)
        if not resolved.recipe.expect:
            raise UsageFault(f"--expect: the recipe {resolved.name} has no `expect`", hint=way)
        held_to += [Gate.parse(metric + comparison) for metric, comparison in resolved.recipe.expect.items()]
    check_gates(held_to, "training", resolved.recipe)
    return held_to


def _train(console: Console, resolved: "Resolved", options: "Options", held_to: "list[Gate]") -> int:
    """The run, its folder as the command's product, and the gates judged at its end."""
    from mini_tf.jobs.repeats import train
    from mini_tf.recipe.gates import failures
    from mini_tf.system.errors import GateMissed

    outcome = train(resolved, options, console)
    shown = None if outcome.folder is None else str(outcome.folder)
    console.answer(shown, run=outcome.folder, metrics=outcome.metrics)
    if outcome.exit_code == 0 and not options.dry_run and (missed := failures(held_to, outcome.metrics)):
        raise GateMissed(missed[0], faults=missed)
    return outcome.exit_code
