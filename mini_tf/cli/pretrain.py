"""`minitf pretrain`: from a recipe to a trained model in a run folder."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from mini_tf.cli.console import Console, command
from mini_tf.cli.options import GATES, RECIPE

FOLDER = ("-d", "--out-dir", "--out_dir", "--output-dir", "--output_dir")

TRANSLATED = ("val.bleu", "val.chrf", "val.exact_match")
MEASURED = ("val.loss", "val.perplexity", "val.bits_per_byte", "val.accuracy", "train.loss", "minutes", *TRANSLATED)
"""What --assert may hold a run to; bits per byte only where every token is asked for, the last three of translations."""


@command
def pretrain(
    console: Console,
    arguments: RECIPE = None,
    out_dir: Annotated[Path | None, typer.Option(*FOLDER, help="The run's folder, or with --name its parent.")] = None,
    name: Annotated[str | None, typer.Option("-n", "--name", help="The run's name.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over beside an existing run.")] = False,
    extend: Annotated[int | None, typer.Option("--extend", min=1, metavar="N", help="Train a finished run N steps further.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Open the data, build the model, train nothing.")] = False,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the complete recipe and leave.")] = False,
    gates: GATES = None,
    expect: Annotated[bool, typer.Option("--expect", help="Hold the run to the recipe's own `expect`; only as shipped.")] = False,
) -> int:
    """Train a model from scratch, evaluate it, and leave a run folder. The same command continues an interrupted run."""
    from mini_tf.errors import GateMissed, UsageFault
    from mini_tf.recipe import reading
    from mini_tf.recipe.gates import Gate, failures
    from mini_tf.scores import require

    recipe, overrides = reading.split_arguments(arguments or [])
    if device is not None:
        overrides.append(f"runtime.device={device}")
    resolved = reading.read(recipe, overrides)
    held_to = [Gate.parse(gate) for gate in gates or []]
    for gate in held_to:
        if gate.metric not in MEASURED:
            raise UsageFault(f"--assert {gate.metric}: training measures no such figure; it does {', '.join(MEASURED)}")
        if gate.metric in TRANSLATED:
            if resolved.recipe.model.READS != "pairs" or not resolved.recipe.eval.translations:
                raise UsageFault(
                    f"--assert {gate.metric}: this run translates nothing", hint="a model of pairs does, with eval.translations"
                )
            require()
    if expect and not resolved.shipped:
        raise UsageFault(
            "--expect holds only for a recipe as shipped, without overrides (--device aside)", hint="use --assert 'val.loss<1.9'"
        )
    if expect and not resolved.recipe.expect:
        raise UsageFault(f"--expect: the recipe {resolved.name} has no `expect`", hint="use --assert 'val.loss<1.9'")
    if expect:
        held_to += [Gate.parse(metric + comparison) for metric, comparison in resolved.recipe.expect.items()]
    if print_config:
        console.answer(reading.dump(resolved.recipe).rstrip(), result=resolved.recipe.model_dump(mode="json"))
        return 0

    from mini_tf.pretrain import Options, pretrain
    from mini_tf.run.opening import Place

    options = Options(Place(out_dir, name, fresh), extend, dry_run, tuple(sys.argv))
    outcome = pretrain(resolved, options, console)
    shown = None if outcome.folder is None else str(outcome.folder)
    console.answer(shown, run=outcome.folder, metrics=outcome.metrics)
    if outcome.exit_code == 0 and not dry_run and (missed := failures(held_to, outcome.metrics)):
        raise GateMissed(missed[0], faults=missed)
    return outcome.exit_code
