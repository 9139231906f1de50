"""`minitf convert`: a trained model with other attention or positions, or with scaled memories."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.pretrain import FRESH, NAME, OUT_DIR
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.loading import loading_torch
from mini_tf.cli.terminal.options import DEVICE, INPUT_OUTPUT, RUN
from mini_tf.system.errors import UsageFault
from mini_tf.system.numbers import duration

if TYPE_CHECKING:
    from mini_tf.jobs.convert import Conversion

DATA = typer.Option(
    "--data",
    metavar="FILE",
    help="Compare on this file, in any format of data.val.",
    show_default="the run's data",
    rich_help_panel=INPUT_OUTPUT,
)
SETTINGS = typer.Argument(
    metavar="[KEY=VALUE ...]", help="Settings of model.attention, model.cross_attention or model.positions to change."
)
MEMORY = typer.Option(
    "--memory",
    metavar="L:I=F",
    help="Multiply the value of memory I of feed-forward layer L by F; 0 silences it. Repeatable.",
)


@command
def convert(
    console: Console,
    run: RUN,
    settings: Annotated[list[str] | None, SETTINGS] = None,
    memories: Annotated[list[str] | None, MEMORY] = None,
    out_dir: Annotated[Path | None, OUT_DIR] = None,
    name: Annotated[str | None, NAME] = None,
    fresh: Annotated[bool, FRESH] = False,
    data: Annotated[str | None, DATA] = None,
    device: DEVICE = "auto",
) -> None:
    if wrong := [one for one in settings or () if "=" not in one]:
        raise UsageFault(f"{wrong[0]!r} is not KEY=VALUE", hint="for example model.attention.kind=window")
    with loading_torch():
        from mini_tf.jobs.convert import convert as convert_run
        from mini_tf.run.location import RunLocation

    location = RunLocation(out_dir, name, fresh)
    location.check()
    conversion = convert_run(run, settings or (), location, console, data, device, memories or ())
    for line in _lines(conversion):
        console.say(line)
    console.output(str(conversion.folder), run=conversion.folder, metrics=_metrics(conversion))


def _metrics(conversion: "Conversion") -> dict[str, float | None]:
    before, after = conversion.before, conversion.after
    metrics = {**{f"before.{name}": value for name, value in before.metrics.items()}, **after.metrics}
    return {**metrics, "kl": conversion.kl, "before.seconds": before.seconds, "seconds": after.seconds}


def _lines(conversion: "Conversion") -> list[str]:
    before, after = conversion.before, conversion.after
    targets = f"on {after.metrics['targets']:,.0f} targets"
    lines = [f"loss {before.metrics['loss']:.4f} before, {after.metrics['loss']:.4f} after the conversion, {targets}"]
    if conversion.kl is not None:
        lines.append(f"KL divergence of the predictions: {conversion.kl:.4f} nats per target")
    return [*lines, f"evaluation {duration(before.seconds)} before, {duration(after.seconds)} after"]
