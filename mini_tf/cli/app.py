"""`minitf`: the commands under one name. Nothing heavy is imported before a command runs."""

import os
import sys
from functools import cache
from typing import Annotated, Any

import typer

import mini_tf
from mini_tf.cli.inspect_views import PACKAGE as VIEWS
from mini_tf.cli.inspect_views import ViewCommand, Views
from mini_tf.cli.terminal.console import Console, refuse
from mini_tf.cli.terminal.help import HelpGroup, ImportedCommand
from mini_tf.cli.terminal.options import CommandLineError
from mini_tf.cli.terminal.streams import silence
from mini_tf.cli.usage import hints
from mini_tf.cli.usage.commands import COMMANDS, GROUPS, INSPECT
from mini_tf.recipe.kind_folders import FoundKind, own_folders
from mini_tf.system.cache import redirect_library_caches
from mini_tf.system.errors import RecipeFault, StorageFault
from mini_tf.system.processes import is_worker

START = """\
Train, fine-tune, prompt and inspect small transformer language models.

  minitf pretrain                         train a small GPT on built-in text
  minitf pretrain my.txt                  train it on your own text
  minitf generate last "Once upon"        continue a prompt with the newest run
  minitf inspect-attention last "a text"  show what each attention head does
  minitf recipe list                      more recipes: BERT, translation, ...

`minitf --help` lists all commands, `minitf COMMAND --help` its options."""


class _Root(HelpGroup):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for name in dict.fromkeys(path.partition(" ")[0] for path in COMMANDS):
            if name == "inspect":
                attention = FoundKind(VIEWS, "attention", own_folders()[0])
                self.commands["inspect-attention"] = ViewCommand(attention, "inspect-attention", INSPECT)
            self.commands[name] = _group(name) if name in GROUPS else ImportedCommand(name)


def _group(name: str) -> HelpGroup:
    commands = {path.partition(" ")[2]: ImportedCommand(path) for path in COMMANDS if path.startswith(f"{name} ")}
    help, panel = GROUPS[name]
    kind = Views if name == "inspect" else HelpGroup
    return kind(name=name, commands=commands, help=help, rich_help_panel=panel, rich_markup_mode="rich")


app = typer.Typer(
    name="minitf",
    cls=_Root,
    pretty_exceptions_enable=False,  # it would print the values of local variables
    rich_markup_mode="rich",
    # --max_new_tokens is --max-new-tokens, in every command
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda name: name.replace("_", "-"),
    },
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"minitf {mini_tf.__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train, fine-tune, prompt and inspect small transformer language models."""
    if context.invoked_subcommand is None:
        typer.echo(START)


@cache
def _program() -> Any:
    """All commands and their options, read from their functions once: that takes longer than a small command."""
    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """The console script: runs one command and leaves with its exit code."""
    _open_standard_streams()
    _share_the_machine()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        _check_working_folder()
        exit_code = _program()(args=arguments, prog_name="minitf", standalone_mode=False)
    except CommandLineError as error:
        exit_code = hints.explain(error, arguments)
    except BrokenPipeError:
        silence(sys.stdout)
        exit_code = 141
    except (StorageFault, RecipeFault) as fault:
        exit_code = refuse(Console(json="--json" in arguments), fault)
    except OSError as error:  # help that could not be printed; commands see to themselves
        silence(sys.stdout)
        exit_code = refuse(Console(), error)
    except SystemExit as leaving:  # Typer's own answer to a reader that left while it printed help
        exit_code = 141 if isinstance(leaving.__context__, BrokenPipeError) else leaving.code
    sys.exit(exit_code or 0)


def _check_working_folder() -> None:
    """StorageFault if it was deleted, which libraries do not expect."""
    try:
        os.getcwd()
    except OSError as error:
        raise StorageFault(
            f"the working folder cannot be used: {error.strerror}", hint="change into another folder: cd"
        ) from None


def _share_the_machine() -> None:
    """Before libraries are imported: torch's waiting threads shall soon stop spinning, pydantic looks for no plugins,
    and all keep their files in our cache.

    By default they spin for milliseconds. Where another process wants the core, the thread that is waited for then
    cannot run. A step of a small model, measured on 2 cores, alone and beside one busy process: 48 and 271 ms when
    spinning long, 48 and 166 ms with this, 55 and 123 ms with a third of it.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")  # else it reads the metadata of every installed package
    if is_worker():  # else torch prints its stack where a process or the launcher ends; the error is ours to print
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    redirect_library_caches()


def _open_standard_streams() -> None:
    # A closed 0, 1 or 2 would be given to the next file we open, and prints would land in a checkpoint. A closed stdout
    # cannot be written, so that the command fails where its result is lost.
    for descriptor, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.dup2(os.open(os.devnull, mode), descriptor)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
