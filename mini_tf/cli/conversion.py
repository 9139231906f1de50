"""`minitf convert`, `import` and `export`: runs from other runs, from models of Hugging Face, and for other tools."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.pretrain import FRESH, NAME, OUT_DIR
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.loading import at_terminal, check_run, loading_torch
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP, io_option
from mini_tf.cli.usage.other_tools import HUGGING_FACE
from mini_tf.recipe.values import one_line
from mini_tf.system.errors import RunFault, UsageFault, suggest
from mini_tf.system.hub import PREFIX, is_model, local_folder
from mini_tf.system.numbers import duration

if TYPE_CHECKING:
    from mini_tf.hf.proof import Parity
    from mini_tf.jobs.convert import Conversion

SOURCE = typer.Argument(
    metavar="DIR", help="A folder with config.json, safetensors files and a tokenizer, or hf:ORG/NAME."
)
RUN_DIR = typer.Option(
    "-o", "-d", "--out-dir", "--output-dir", metavar="DIR", help="The run folder; with --name, its parent."
)
OUT = typer.Option(
    "-o", "--output", metavar="DIR", help="The folder to write, which must not exist or be empty.", show_default=False
)
AUTO = "auto"
TO = typer.Option(
    "--to",
    metavar="FORMAT",
    help="auto: the first Hugging Face family that fits; llama, bert, ..., code, onnx, gguf, safetensors, peft.",
)
LICENSE = typer.Option("--license", metavar="NAME", help="Licence of the model, for its model card.")
TOKENIZER = io_option(
    "--tokenizer", metavar="PATH", help="Its tokenizer: a file or folder.", show_default="that of DIR"
)
FILE_SUFFIXES = (".onnx", ".gguf", ".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".h5", ".zip")
"""Of names that are meant as files of other tools."""
BASE = io_option("--base", metavar="DIR", help="Of a PEFT adapter: its model.", show_default="as it says")


def _say_proof(console: Console, parity: "Parity") -> None:
    (console.warn if parity.missing else console.say)(parity.describe())


@command
def import_(
    console: Console,
    source: Annotated[str, SOURCE],
    out_dir: Annotated[Path | None, RUN_DIR] = None,
    name: Annotated[str | None, NAME] = None,
    fresh: Annotated[bool, FRESH] = False,
    tokenizer: Annotated[Path | None, TOKENIZER] = None,
    base: Annotated[str | None, BASE] = None,
) -> None:
    folder, base_folder = local_folder(source), local_folder(base) if base else None
    if not os.path.isfile(folder / "config.json"):
        from mini_tf.recipe.parsing.run_paths import run_around
        from mini_tf.run.finding import find

        if around := run_around(folder):
            folder = around[0]  # which is refused as the run that it is
        elif not os.path.isdir(folder):
            with suppress(RunFault):
                folder = find(source)
            if not os.path.isdir(folder) and is_model(source):
                fault = f"{one_line(source)}: no such folder"
                raise RunFault(fault, hint=f"of Hugging Face's hub: `minitf import {PREFIX}{one_line(source)}`")
    with loading_torch():
        from mini_tf.hf.importing import import_model
        from mini_tf.run.location import RunLocation

    location = RunLocation(out_dir, name, fresh)
    location.check()
    with at_terminal("reading the model and comparing its outputs"):
        imported = import_model(folder, location, console.say, console.warn, tokenizer, base_folder)
    console.say(f"{imported.parameters:,} parameters")
    _say_proof(console, imported.parity)
    difference, proved = imported.parity.largest_difference, not imported.parity.missing
    metrics = {"largest_difference": difference}
    console.output(str(imported.folder), run=imported.folder, metrics=metrics, result={"proved": proved})


@command
def export(
    console: Console,
    run: RUN,
    output: Annotated[Path, OUT],
    to: Annotated[str, TO] = "auto",
    step: STEP = None,
    license: Annotated[str, LICENSE] = "unknown",
) -> None:
    from mini_tf.recipe.kinds import listing

    if (suffix := output.suffix.lower()) in FILE_SUFFIXES:
        to_format = f"--to {suffix[1:]} " if suffix[1:] in listing("hf.formats") else ""
        raise UsageFault(
            f"--output {output}: a folder is written, not a file", hint=f"{to_format}-o {output.with_suffix('')}"
        )
    check_run(run, step)
    choices = [AUTO, *listing("hf.families"), *listing("hf.formats")]
    if to not in choices:
        way = "leave --to out: the folder is for Hugging Face" if to.lower() in HUGGING_FACE else ""
        raise UsageFault(f"--to {to!r}: must be one of {', '.join(choices)}", hint=suggest(to, choices, way))
    with loading_torch():
        from mini_tf.hf.exporting import export_model

    with at_terminal("writing the model and comparing its outputs"):
        exported = export_model(run, output, None if to == AUTO else to, step, license)
    difference, proved = 0.0, False
    if (parity := exported.parity) is not None:
        _say_proof(console, parity)
        difference, proved = parity.largest_difference, not parity.missing
    for note in exported.notes:
        console.say(note)
    written = {"written_as": exported.written_as, "proved": proved}
    console.output(str(exported.folder), metrics={"largest_difference": difference}, result=written)


DATA = io_option(
    "--data", metavar="FILE", help="Compare on this file, in any format of data.val.", show_default="the run's data"
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
    if wrong := [setting for setting in settings or () if "=" not in setting]:
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
