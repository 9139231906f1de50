"""Arguments and options that several commands have, each declared once, and the panels of --help."""

from functools import partial
from inspect import Parameter
from typing import Annotated, Any, Literal

import typer

from mini_tf.cli.terminal import completion
from mini_tf.cli.terminal.help import MESSAGES

# Public in every version of Typer, unlike the place the class itself lives in.
CommandLineError: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
"""Exceptions of click for an invalid command line."""

MODEL, CHECKS, RUN_FOLDER, INPUT_OUTPUT = "Model", "Checks", "Run folder", "Input and output"
"""Panels of --help."""
model_option, check_option, folder_option, io_option = (
    partial(typer.Option, rich_help_panel=panel) for panel in (MODEL, CHECKS, RUN_FOLDER, INPUT_OUTPUT)
)

RECIPE_HELP = "A shipped recipe, a recipe file, a data file or a run, and settings to override"
RECIPE = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE] [KEY=VALUE ...]",
        help=RECIPE_HELP,
        show_default="quickstart",
        autocompletion=completion.recipe_arguments,
    ),
]
RUN = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run: its folder, its name in outputs/, or `last` for the newest.",
        autocompletion=completion.run_names,
    ),
]
STEP = Annotated[
    str | None, model_option("--step", metavar="N|best|last", help="Which checkpoint.", show_default="best")
]
_AVERAGE_HELP = "Average the weights of the last N checkpoints, or of the best ones."
AVERAGE = Annotated[str | None, model_option("--average", metavar="N|best", help=_AVERAGE_HELP)]
_device: Any = {"metavar": "DEVICE", "help": "auto, cpu, cuda, cuda:N or mps."}
DEVICE = Annotated[str, model_option("--device", **_device)]
RUNTIME_DEVICE = Annotated[
    str | None, typer.Option("--device", **_device, show_default="the recipe's runtime.device, auto")
]
_NPROC: dict[str, Any] = {"min": 1, "max": 1024, "metavar": "P", "show_default": False}
NPROC = Annotated[int, model_option("--nproc", help="Divide the work among P processes on this machine.", **_NPROC)]
RUNTIME_NPROC = Annotated[int, typer.Option("--nproc", help="Train in P processes on this machine.", **_NPROC)]
_GATE_HELP = "Exit with code 8 unless the metric meets this bound. Repeatable."
GATES = Annotated[list[str] | None, check_option("--assert", metavar="'val.loss<1.9'", help=_GATE_HELP)]
PREDICTED_GATES = Annotated[list[str] | None, check_option("--assert", metavar="'accuracy>0.9'", help=_GATE_HELP)]
_FIELDS_HELP = "Columns of the file, by name or number from 0, as data.fields."
FIELDS = Annotated[
    str | None,
    io_option("--fields", metavar="'{text: 1, label: 0}'", help=_FIELDS_HELP, show_default="the run's"),
]


_message = partial(typer.Option, rich_help_panel=MESSAGES)
QUIET = Annotated[bool, _message("-q", "--quiet", help="Only warnings and errors on stderr.")]
VERBOSE = Annotated[bool, _message("-v", "--verbose", help="More details on stderr.")]
JSON = Annotated[bool, _message("--json", help="Print the result as JSON on stdout.")]
DEBUG = Annotated[bool, _message("--debug", help="Print the traceback of every error.")]
COLOR = Annotated[
    Literal["auto", "always", "never"], _message("--color", help="Colored output.", metavar="auto|always|never")
]
"""Options of every command."""


def parameter(name: str, annotation: Any, default: Any = None) -> Parameter:
    """A parameter of a command that is made rather than written in its signature."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
