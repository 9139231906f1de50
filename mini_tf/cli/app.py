"""`minitf`: the commands under one name. Nothing heavy is imported before a command runs."""

import os
import shlex
import sys
from functools import cache
from typing import Annotated, Any

import typer

import mini_tf
from mini_tf.cli import (
    convert,
    cost,
    data,
    doctor,
    evaluate,
    finetune,
    inspect,
    interchange,
    predict,
    pretrain,
    recipe,
    runs,
    tokenizer,
)
from mini_tf.cli.generate import generate
from mini_tf.cli.inspect import attention
from mini_tf.cli.terminal.console import Console, refuse
from mini_tf.cli.terminal.help import HelpGroup, add, add_group
from mini_tf.cli.terminal.options import CommandLineError
from mini_tf.cli.terminal.repeated_options import refuse_repeated
from mini_tf.cli.terminal.streams import silence
from mini_tf.system.cache import redirect_library_caches
from mini_tf.system.errors import RecipeFault, StorageFault, UsageFault
from mini_tf.system.processes import is_worker

START = """\
Train, fine-tune, prompt and inspect small transformer language models.

  minitf pretrain                         train a small GPT on built-in text
  minitf pretrain my.txt                  train it on your own text
  minitf generate last "Once upon"        continue a prompt with the newest run
  minitf inspect-attention last "a text"  show what each attention head does
  minitf recipe list                      more recipes: BERT, translation, ...

`minitf --help` lists all commands, `minitf COMMAND --help` its options."""
TRAIN, USE, INSPECT, SETUP, RUNS = (
    "Train",
    "Use a model",
    "Look inside a model",
    "Recipes, data, tokenizers",
    "Runs and machine",
)
"""Panels of commands."""
REPLACED = {
    "plan": (
        "`minitf cost RECIPE` counts and measures; mini_tf/distributed/README.md has the arithmetic for many devices"
    )
}
"""Hints for names that are no command."""
ORDER = (
    *(
        "pretrain",
        "finetune",
        "convert",
        "import",
        "generate",
        "predict",
        "evaluate",
        "export",
        "inspect-attention",
        "inspect",
    ),
    *("recipe", "data", "tokenizer", "runs", "cost", "doctor"),
)


class _Root(HelpGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [*ORDER]


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
add(app, "pretrain", pretrain.pretrain, TRAIN)
add(app, "finetune", finetune.finetune, TRAIN)
add(app, "generate", generate, USE)
add(app, "convert", convert.convert, TRAIN)
add(app, "import", interchange.import_, TRAIN)
add(app, "export", interchange.export, USE)
add(app, "predict", predict.predict, USE)
add(app, "evaluate", evaluate.evaluate, USE)
add(app, "inspect-attention", attention.attention, INSPECT)
add_group(app, inspect.app, "inspect", INSPECT)
add_group(app, recipe.app, "recipe", SETUP)
add_group(app, data.app, "data", SETUP)
add_group(app, tokenizer.app, "tokenizer", SETUP)
add_group(app, runs.app, "runs", RUNS)
add(app, "cost", cost.cost, RUNS)
add(app, "doctor", doctor.doctor, RUNS)


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
    program = typer.main.get_command(app)
    refuse_repeated(program)
    return program


def main(arguments: list[str] | None = None) -> None:
    """The console script: runs one command and leaves with its exit code."""
    _open_standard_streams()
    _share_the_machine()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        _check_working_folder()
        exit_code = _program()(args=arguments, prog_name="minitf", standalone_mode=False)
    except CommandLineError as error:
        exit_code = _explain_usage(error, arguments)
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
    """Before torch is imported: its waiting threads shall soon stop spinning, and libraries keep their files in our
    cache.

    By default they spin for milliseconds. Where another process wants the core, the thread that is waited for then
    cannot run. A step of a small model, measured on 2 cores, alone and beside one busy process: 48 and 271 ms when
    spinning long, 48 and 166 ms with this, 55 and 123 ms with a third of it.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
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


def _explain_usage(error: Exception, arguments: list[str]) -> int:
    """One line that ends with the command to get help; an envelope with --json."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "minitf"
    message = str(getattr(error, "format_message", lambda: str(error))()).rstrip(".")
    if type(error).__name__ == "NoSuchOption":
        option = str(getattr(error, "option_name", ""))
        message = message.replace(option, _written(option, arguments).partition("=")[0])
    replaced = REPLACED.get(arguments[0]) if context is not None and context.parent is None else None
    way = replaced or _as_key(error, arguments) or _as_text(error, arguments) or f"see `{path} --help`"
    fault = UsageFault(f"{path}: {message}", hint=way)
    return refuse(Console(command=path.partition(" ")[2], json="--json" in arguments), fault)


def _as_key(error: Exception, arguments: list[str]) -> str | None:
    """A hint with the recipe key for an unknown option; None if the command takes no KEY=VALUE or no key is similar."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    takes = context is not None and any(
        "KEY=VALUE" in str(getattr(one, "metavar", "")) for one in context.command.params
    )
    if option is None or not takes:
        return None
    from mini_tf.recipe.keys import suggest_key

    given = _written(option, arguments)
    _, equals, value = given.partition("=")
    after = arguments[arguments.index(given) + 1 :] if given in arguments and not equals else []
    value = value or next((one for one in after[:1] if not one.startswith("-")), "VALUE")
    key = suggest_key(option)
    return key and f"settings are written without dashes: {key}={value}"


def _as_text(error: Exception, arguments: list[str]) -> str | None:
    """A hint for a text that begins with -, which was read as an option."""
    option = getattr(error, "option_name", None)
    texts = [one for one in arguments if option is not None and one.startswith("-") and any(map(str.isspace, one))]
    return f"a text that begins with - stands behind --: -- {shlex.quote(texts[0])}" if texts else None


def _written(option: str, arguments: list[str]) -> str:
    """The argument that an option was read from, whose underscores are dashes by now."""
    return next(
        (one for one in arguments if one.partition("=")[0].replace("_", "-") == option.replace("_", "-")), option
    )
