"""Arguments and options that several commands have, each declared once."""

from typing import Annotated

import typer

# Public in every version of Typer, unlike the place the class itself lives in.
CommandLineError: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
"""What is raised where the command line cannot be read."""

RECIPE = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RECIPE] [KEY=VALUE ...]", help="A preset, a file or a run, and what to change; default: quickstart."),
]
RUN = Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, its name in outputs, or `last`.")]
CHECKPOINT, CHECKS, RUN_FOLDER = "Model", "Checks", "Run folder"
"""Panels of --help."""
STEP = Annotated[
    str | None, typer.Option("--step", metavar="N|best|last", help="A checkpoint (default: the best).", rich_help_panel=CHECKPOINT)
]
AVERAGE = Annotated[
    str | None,
    typer.Option("--average", metavar="N|best", help="Average of the last N checkpoints, or of the best ones.", rich_help_panel=CHECKPOINT),
]
DEVICE = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.", rich_help_panel=CHECKPOINT)]
PREDICTED_GATES = Annotated[
    list[str] | None, typer.Option("--assert", metavar="'accuracy>0.9'", help="Exit with 8 unless this holds.", rich_help_panel=CHECKS)
]
GATES = Annotated[
    list[str] | None, typer.Option("--assert", metavar="'val.loss<1.9'", help="Exit with 8 unless this holds.", rich_help_panel=CHECKS)
]
FIELDS = Annotated[
    str | None, typer.Option("--fields", metavar="'{text: 1, label: 0}'", help="Columns of the file, as data.fields; default: the run's.")
]
