"""Everything that reaches a terminal: stdout is the product, stderr the conversation, the exit code the verdict.

A command is a function whose first parameter is its `Console`; `@command` gives it the options that all commands have
(-q -v --json --debug --color), and turns what it raises into one line and an exit code:

    @app.command("show")
    @command
    def show(console: Console, run: Annotated[str, typer.Argument(help="...")]) -> None:
        console.say("reading ...")                          # stderr; not with -q
        console.answer("a table", result={"rows": 3})       # stdout: the text, or with --json the one envelope
"""

import inspect
import json
import math
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mini_tf.cli.terminal.crash_files import keep_traceback
from mini_tf.cli.terminal.interrupts import interruptible
from mini_tf.cli.terminal.streams import ReaderLeft, is_terminal, wants_color, write_stderr, write_stdout
from mini_tf.cli.terminal.waits import waits_of
from mini_tf.system.error_conversion import is_bug, to_minitf_error
from mini_tf.system.errors import MinitfError, StorageFault
from mini_tf.system.progress import progress_display
from mini_tf.system.safe_text import safe_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text
    from tqdm import tqdm

OUTPUT = "Messages"
"""The panel of --help for the options that all commands share."""
_COLORS = {"error": "\x1b[31m", "warning": "\x1b[33m"}


def to_json(value: Any) -> str:
    """One line of ASCII JSON, so that nothing in it steers a terminal; a number that is not finite becomes null."""
    return json.dumps(_plain(value), allow_nan=False).replace("\x7f", "\\u007f")


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


class Console:
    """One command's terminal. Once a run folder is known, `log` receives every line said, and `crash` the traceback of a bug."""

    def __init__(
        self, *, command: str = "", quiet: bool = False, verbose: bool = False, json: bool = False, debug: bool = False, color: str = "auto"
    ) -> None:
        self.command, self.quiet, self.verbose, self.json, self.debug, self.color = command, quiet, verbose, json, debug, color
        self.context: typer.Context | None = None
        """How the command line was read."""
        self.log: Callable[[str], None] | None = None
        self.crash: Callable[[str], Path] | None = None
        self._answer: dict[str, Any] = {}
        self._bar: tqdm[Any] | None = None
        self._status_shown = False
        self._lock = threading.RLock()  # a status is shown by a thread of its own

    @property
    def live(self) -> bool:
        """Whether a bar may be drawn: a person watches stderr."""
        return not self.quiet and is_terminal(sys.stderr)

    def say(self, line: str) -> None:
        """A line of the conversation, on stderr; -q silences it."""
        self._tell(line, hidden=self.quiet)

    def detail(self, line: str) -> None:
        """A line that only -v shows; log.txt has it anyway."""
        self._tell(line, hidden=not self.verbose)

    def warn(self, line: str) -> None:
        """A line that even -q shows."""
        self._tell(f"warning: {line}", tone="warning")

    def bar(self, total: int, unit: str = "step", initial: int = 0) -> "tqdm[Any]":
        """A progress bar on stderr, which draws nothing unless a person watches; a context manager with `update`."""
        from tqdm import tqdm

        self._bar = tqdm(
            total=total,
            unit=unit,
            initial=initial,
            disable=not self.live,
            file=sys.stderr,
            dynamic_ncols=True,
            leave=False,
            bar_format="{l_bar}{bar:10}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
            mininterval=0.2,
        )
        return self._bar

    def status(self, line: str) -> None:
        """A line on a live stderr that stays until the next one, which replaces it; "" removes it. On a bar it stands before it."""
        if self._bar is not None and not self._bar.disable:
            self._bar.set_description_str(safe_text(line))  # tqdm has a lock of its own; who waits for it must not hold this one
            return
        with self._lock:
            width = shutil.get_terminal_size((80, 24)).columns - 1
            write_stderr(f"\r\x1b[K{safe_text(line)[:width]}")
            self._status_shown = bool(line)

    def print_product(self, text: str, end: str = "\n") -> None:
        """Text for stdout, flushed at once, made safe."""
        write_stdout(safe_text(text) + end)

    @property
    def colored(self) -> bool:
        """Whether a picture on stdout may have colours."""
        return wants_color(self.color, sys.stdout)

    @property
    def width(self) -> int:
        """Columns for a picture on stdout: COLUMNS, else the terminal's, else 80; never under 40."""
        return max(40, shutil.get_terminal_size((80, 24)).columns)

    def picture(self, picture: "RenderableType | Callable[..., Text]", *given: Any, **chosen: Any) -> None:
        """A picture for stdout; nothing with --json, where the answer has the numbers.

        Of a function of `drawing.terminal` and its arguments, this console's `width` and `colored` are the last.
        """
        from mini_tf.drawing.ansi import rendered  # rich takes longer to import than --help to answer

        if not self.json:
            drawn = picture(*given, **chosen, colored=self.colored, width=self.width) if callable(picture) else picture
            write_stdout(rendered(drawn, colored=self.colored, width=self.width))

    def answer(
        self, text: str | None = None, *, run: Path | str | None = None, metrics: Mapping[str, Any] | None = None, result: Any = None
    ) -> None:
        """The one product of a command: its text now, or, with --json, one envelope when the command ends.

        `text` None prints nothing in text mode. An exit code or a refusal that follows makes the envelope say so.
        """
        self._answer = _envelope_fields(run, metrics, result)
        if text is not None and not self.json:
            self.print_product(text)

    def emit_json(self, *, run: Path | str | None = None, metrics: Mapping[str, Any] | None = None, result: Any = None) -> None:
        """One envelope at once, for commands that print JSONL: one a line of input."""
        write_stdout(to_json({"ok": True, "command": self.command, **_envelope_fields(run, metrics, result)}) + "\n")

    def close(self, exit_code: int, error: MinitfError | None = None) -> None:
        """Print the refusal's lines on stderr, and with --json the envelope that is still due."""
        for line in _lines(error) if error else ():
            self._tell(line.replace("\n", "\\n"), tone="error")  # a name with a newline in it must not look like two lines
        if not self.json or not (error or self._answer or exit_code):
            return
        envelope: dict[str, Any] = {"ok": exit_code == 0, "command": self.command}
        if exit_code:
            envelope |= {"exit_code": exit_code, "error": _error_fields(error, exit_code)}
        write_stdout(to_json(envelope | self._answer) + "\n")

    def _tell(self, line: str, *, hidden: bool = False, tone: Literal["", "error", "warning"] = "") -> None:
        line = safe_text(line)
        if self.log is not None:
            with suppress(OSError):
                self.log(line)
        if hidden:
            return
        if tone and wants_color(self.color, sys.stderr):
            line = f"{_COLORS[tone]}{line}\x1b[0m"
        with self._lock:
            if self._status_shown:
                self.status("")
            if self._bar is not None and not self._bar.disable:
                self._bar.clear()
            write_stderr(line + "\n")


def _envelope_fields(run: Path | str | None, metrics: Mapping[str, Any] | None, result: Any) -> dict[str, Any]:
    return {"run": None if run is None else str(run), "metrics": dict(metrics or {}), "result": result}


def _lines(error: MinitfError) -> Sequence[str]:
    """A refusal as people read it: every fault a line, with its place first; the way out behind a single one."""
    if len(error.faults) > 1:
        return [*error.faults, *([error.hint] if error.hint else [])]
    [line] = error.faults
    if error.where and error.where[0] not in line:
        line = f"{error.where[0]}: {line}"
    return [f"{line}; {error.hint}" if error.hint else line]


def _error_fields(error: MinitfError | None, exit_code: int) -> dict[str, Any]:
    if error is None:
        return {"message": f"stopped with exit code {exit_code}", "hint": None, "where": []}
    fields = {"message": error.message, "hint": error.hint, "where": list(error.where)}
    return fields | ({"faults": list(error.faults)} if len(error.faults) > 1 else {})


def command(body: Callable[..., int | None]) -> Callable[..., None]:
    """The body as Typer's command: a `Console` comes first, the common options are added, errors become exit codes.

    The body returns None or an exit code. The shared options stand last in --help.
    """

    def invoke(
        *,
        context: typer.Context,
        quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only warnings and errors on stderr.", rich_help_panel=OUTPUT)] = False,
        verbose: Annotated[bool, typer.Option("-v", "--verbose", help="More on stderr.", rich_help_panel=OUTPUT)] = False,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.", rich_help_panel=OUTPUT)] = False,
        debug: Annotated[bool, typer.Option("--debug", help="A traceback for every error.", rich_help_panel=OUTPUT)] = False,
        color: Annotated[Literal["auto", "always", "never"], typer.Option("--color", help="Colours.", rich_help_panel=OUTPUT)] = "auto",
        **arguments: Any,
    ) -> None:
        name = context.command_path.partition(" ")[2]
        console = Console(command=name, quiet=quiet, verbose=verbose, json=json, debug=debug, color=color)
        console.context = context
        raise typer.Exit(_run(body, console, arguments))

    own = list(inspect.signature(body, eval_str=True).parameters.values())[1:]
    shared = [p for p in inspect.signature(invoke, eval_str=True).parameters.values() if p.kind is p.KEYWORD_ONLY]
    as_keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    invoke.__signature__ = inspect.Signature([*as_keywords, *shared])  # type: ignore[attr-defined]
    invoke.__annotations__ = {p.name: p.annotation for p in [*own, *shared]}
    invoke.__name__, invoke.__doc__, invoke.__module__ = body.__name__, body.__doc__, body.__module__
    return invoke


def _run(body: Callable[..., int | None], console: Console, arguments: Mapping[str, Any]) -> int:
    try:
        with interruptible(), progress_display(waits_of(console)):
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
    """Tell a person what an error means; its exit code. A bug's traceback goes into a file, any but a refusal's into log.txt."""
    refusal, trace = to_minitf_error(error), traceback.format_exc()
    if console.log is not None and not isinstance(error, MinitfError):
        with suppress(OSError):
            console.log(trace)
    if console.debug:
        write_stderr(safe_text(trace))
    if is_bug(error):
        kept = keep_traceback(safe_text(trace), console.crash)
        refusal.hint = f"{kept} says where" if kept else "--debug shows where"
    return _leave(console, refusal.exit_code, refusal)


def _leave(console: Console, exit_code: int, refusal: MinitfError | None = None) -> int:
    try:
        console.close(exit_code, refusal)
    except ReaderLeft:
        return 141
    except OSError:  # stdout takes no envelope, but stderr has said why
        return exit_code or StorageFault.exit_code
    return exit_code
