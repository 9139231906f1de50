"""Output of commands: results on stdout, messages on stderr, an exit code.

A command is a function whose first parameter is a `Console`; `@command` adds the options of all commands
(-q -v --json --debug --color) and turns exceptions into one line and an exit code:

    @app.command("show")
    @command
    def show(console: Console, run: Annotated[str, typer.Argument(help="...")]) -> None:
        console.say("reading ...")                          # stderr; not with -q
        console.output("a table", result={"rows": 3})       # stdout: the text, or with --json one JSON object
"""

import inspect
import os
import shutil
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mini_tf.cli.terminal.options import COLOR, DEBUG, JSON, QUIET, VERBOSE
from mini_tf.cli.terminal.streams import (
    ReaderLeft,
    interruptible,
    is_terminal,
    to_json,
    wants_color,
    write_stderr,
    write_stdout,
)
from mini_tf.cli.terminal.waits import waits_of
from mini_tf.system.errors import MinitfError, ResultWarning, StorageFault, UsageFault, is_bug, to_minitf_error
from mini_tf.system.processes import is_trial, is_worker
from mini_tf.system.progress import progress_display
from mini_tf.system.reporting import LineReporter, Tone
from mini_tf.system.safe_text import safe_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_COLORS = {"error": "\x1b[31m", "warning": "\x1b[33m"}


class Console(LineReporter):
    """Output of one command."""

    def __init__(
        self,
        *,
        command: str = "",
        quiet: bool = False,
        verbose: bool = False,
        json: bool = False,
        debug: bool = False,
        color: str = "auto",
    ) -> None:
        super().__init__(quiet, verbose)
        self.command, self.json, self.debug, self.color = command, json, debug, color
        self.context: typer.Context | None = None
        """The parsed command line."""
        self.envelope: dict[str, Any] = {}
        """The fields of `output` for --json."""
        self._status_shown = False
        self._lock = threading.RLock()  # a status is shown by a thread of its own

    @property
    def live(self) -> bool:
        """Whether a progress bar is drawn: stderr is a terminal."""
        return not self.quiet and is_terminal(sys.stderr)

    def status(self, line: str) -> None:
        """A line on a terminal that the next one replaces; "" removes it. With a progress bar, its description."""
        if self._shown_bar is not None:
            # tqdm has its own lock; taking it while holding ours could deadlock.
            self._shown_bar.set_description_str(safe_text(line))
            return
        with self._lock:
            width = shutil.get_terminal_size((80, 24)).columns - 1
            write_stderr(f"\r\x1b[K{safe_text(line)[:width]}")
            self._status_shown = bool(line)

    def print_output(self, text: str, end: str = "\n") -> None:
        """Print text to stdout and flush; control characters are escaped."""
        self._print(safe_text(text) + end)

    def _print(self, text: str) -> None:
        if self._status_shown:
            self.status("")
        write_stdout(text)

    @property
    def colored(self) -> bool:
        """Whether pictures on stdout are colored."""
        return wants_color(self.color, sys.stdout)

    @property
    def width(self) -> int:
        """Columns for pictures on stdout: COLUMNS, else the terminal's, else 80; at least 40."""
        return max(40, shutil.get_terminal_size((80, 24)).columns)

    def show(self, picture: "RenderableType | Callable[..., Text]", *args: Any, **options: Any) -> None:
        """Print a picture to stdout, except with --json. A function of `drawing.terminal` also gets `width` and
        `colored`.
        """
        from mini_tf.drawing.text_layout import render_ansi  # rich takes longer to import than --help to answer

        if not self.json:
            drawn = picture(*args, **options, colored=self.colored, width=self.width) if callable(picture) else picture
            self._print(render_ansi(drawn, colored=self.colored, width=self.width))

    def output(
        self,
        text: str | None = None,
        *,
        run: Path | str | None = None,
        metrics: Mapping[str, Any] | None = None,
        result: Any = None,
    ) -> None:
        """The result of a command: prints `text` now, or with --json one object at the end, including any error."""
        self.envelope = _envelope_fields(run, metrics, result)
        if text is not None and not self.json:
            self.print_output(text)

    def emit_json(
        self, *, run: Path | str | None = None, metrics: Mapping[str, Any] | None = None, result: Any = None
    ) -> None:
        """Print one JSON object at once, for commands with one object per input (JSONL)."""
        self._print(to_json({"ok": True, "command": self.command, **_envelope_fields(run, metrics, result)}) + "\n")

    def close(self, exit_code: int, error: MinitfError | None = None) -> None:
        """Print the error on stderr, and with --json the object that is still due."""
        for line in error.lines if error else ():
            # A name with a newline in it must not look like two lines.
            self.write(line.replace("\n", "\\n"), tone="error")
        if not self.json or not (error or self.envelope or exit_code):
            return
        envelope: dict[str, Any] = {"ok": exit_code == 0, "command": self.command}
        if exit_code:
            envelope |= {"exit_code": exit_code, "error": _error_fields(error, exit_code)}
        self._print(to_json(envelope | self.envelope) + "\n")

    def _show(self, line: str, tone: Tone) -> None:
        if tone and wants_color(self.color, sys.stderr):
            line = f"{_COLORS[tone]}{line}\x1b[0m"
        with self._lock:
            if self._status_shown:
                self.status("")
            if self._shown_bar is not None:
                self._shown_bar.clear()
            write_stderr(line + "\n")


def _envelope_fields(run: Path | str | None, metrics: Mapping[str, Any] | None, result: Any) -> dict[str, Any]:
    return {"run": None if run is None else str(run), "metrics": dict(metrics or {}), "result": result}


def _error_fields(error: MinitfError | None, exit_code: int) -> dict[str, Any]:
    if error is None:
        return {"message": f"stopped with exit code {exit_code}", "hint": None, "where": []}
    fields = {"message": error.message, "hint": error.hint, "where": list(error.where)}
    return fields | ({"faults": list(error.faults)} if len(error.faults) > 1 else {})


ARGUMENTS: ContextVar[Set[str]] = ContextVar("ARGUMENTS", default=frozenset())
"""Names of the arguments and options of the command that runs."""


def command(body: Callable[..., int | None], options: Iterable[inspect.Parameter] = ()) -> Callable[..., None]:
    """A Typer command from `body(console, ..., **options)`, with the common options; returns None or an exit code."""

    def invoke(
        *,
        ctx: typer.Context,
        quiet: QUIET = False,
        verbose: VERBOSE = False,
        json: JSON = False,
        debug: DEBUG = False,
        color: COLOR = "auto",
        **arguments: Any,
    ) -> None:
        name = ctx.command_path.partition(" ")[2]
        of_class: Callable[..., Console] = Console
        if (
            is_worker() or is_trial()
        ) and "nproc" in arguments:  # other commands do not know of the processes of a batch system
            from mini_tf.cli.terminal.processes import worker_console

            of_class = worker_console
        settings: dict[str, Any] = dict(command=name, quiet=quiet, verbose=verbose, json=json, debug=debug, color=color)
        try:
            console = of_class(**settings)
        except UsageFault as fault:  # RANK and the like are not sound
            raise typer.Exit(refuse(Console(**settings), fault)) from None
        console.context = ctx
        ARGUMENTS.set(arguments.keys())
        raise typer.Exit(_run(body, console, arguments))

    positional, keyword_only = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    written = list(inspect.signature(body, eval_str=True).parameters.values())[1:]
    shared = [p for p in inspect.signature(invoke, eval_str=True).parameters.values() if p.kind is keyword_only]
    first = [p.replace(kind=keyword_only) for p in written if p.kind is positional]
    every = [*first, *options, *(p for p in written if p.kind is keyword_only), *shared]  # in the order of --help
    invoke.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    invoke.__annotations__ = {p.name: p.annotation for p in every}
    invoke.__name__, invoke.__doc__, invoke.__module__ = body.__name__, body.__doc__, body.__module__
    return invoke


@contextmanager
def _warnings_on(console: Console) -> Iterator[None]:
    """Within it a ResultWarning is a line of the console, the same one once."""
    said = set[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("always", ResultWarning)  # "default" forgets what it showed when a module adds a filter
        printing = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *more: Any, **named: Any) -> None:
            if not issubclass(category, ResultWarning):
                printing(message, category, *more, **named)
            elif str(message) not in said:
                said.add(str(message))
                console.warn(str(message))

        warnings.showwarning = show
        yield


def _run(body: Callable[..., int | None], console: Console, arguments: Mapping[str, Any]) -> int:
    try:
        with interruptible(), progress_display(waits_of(console)), _warnings_on(console):
            exit_code = body(console, **arguments) or 0
        console.close(exit_code)
        return exit_code
    except typer.Exit as leaving:
        return _leave(console, int(leaving.exit_code))
    except KeyboardInterrupt:
        return _leave(console, 130, MinitfError("interrupted"))
    except SystemExit as leaving:
        return _leave(console, int(leaving.code or 0), MinitfError("stopped", hint="the same command continues"))
    except (ReaderLeft, BrokenPipeError):
        return 141
    except Exception as error:
        return refuse(console, error)


def refuse(console: Console, error: Exception) -> int:
    """Print an error; returns its exit code. Tracebacks go to log.txt, that of a bug also into its own file."""
    refusal, trace = to_minitf_error(error), "(no memory for a traceback)\n"
    with suppress(MemoryError):
        trace = traceback.format_exc()
    if console.log is not None and not isinstance(error, MinitfError):
        with suppress(OSError):
            console.log(trace)
    if console.debug:
        write_stderr(safe_text(trace))
    if is_bug(error):
        kept = save_traceback(safe_text(trace), console.crash)
        refusal.hint = f"traceback: {kept}" if kept else "--debug prints the traceback"
    return _leave(console, refusal.exit_code, refusal)


def _leave(console: Console, exit_code: int, refusal: MinitfError | None = None) -> int:
    try:
        console.close(exit_code, refusal)
    except ReaderLeft:
        return 141
    except OSError:  # stdout takes no envelope, but stderr has said why
        return exit_code or StorageFault.exit_code
    return exit_code


def save_traceback(trace: str, in_run: Callable[[str], Path] | None) -> Path | None:
    """Write the traceback into the run folder, else into the cache; None if neither is writable."""
    for keep in (in_run, _save_in_cache):
        with suppress(OSError, MinitfError):
            if keep is not None:
                return keep(trace)
    return None


def _save_in_cache(trace: str) -> Path:
    from mini_tf.system.cache import cache_folder

    folder = cache_folder() / "crashes"
    folder.mkdir(exist_ok=True)
    path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.txt"
    path.write_text(trace, encoding="utf-8", errors="backslashreplace")
    return path
