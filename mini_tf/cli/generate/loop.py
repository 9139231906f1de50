"""The prompt loop: somebody at a terminal asks, the model answers, until Ctrl-D.

Ctrl-C while an answer is written ends that answer; at the prompt it ends the loop.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from mini_tf.cli.terminal.console import Console
from mini_tf.cli.terminal.lines import refuse_broken
from mini_tf.system.errors import Refusal, UsageFault

PROMPT = "> "


def prompt_loop(console: Console, answer: Callable[[Sequence[str]], None]) -> int:
    """Ask and answer; the exit code. What cannot be answered is told in a line, and the loop goes on."""
    with suppress(ImportError):
        import readline  # input() then edits the line and remembers others

        # In the C locale readline takes bytes above 127 for commands.
        for setting in ("input-meta on", "output-meta on", "convert-meta off"):
            readline.parse_and_bind(f"set {setting}")
    while True:
        try:
            prompt = _ask()
            if prompt:
                _answer(console, answer, prompt)
        except EOFError:
            console.say("")
            return 0
        except KeyboardInterrupt:
            console.say("")
            raise
        except Refusal as refusal:
            console.close(refusal.exit_code, refusal)


def _answer(console: Console, answer: Callable[[Sequence[str]], None], prompt: str) -> None:
    try:
        answer([prompt])
    except KeyboardInterrupt:
        if console.json:
            console.close(130, Refusal("interrupted"))
        else:
            console.print_product("")


def _ask() -> str:
    """The next line; EOFError at the end, UsageFault where it is not UTF-8."""
    try:
        if sys.stdout.isatty():
            line = input(PROMPT)
        else:  # input() would write its prompt to stdout, which is somebody's file
            sys.stderr.write(PROMPT)
            sys.stderr.flush()
            line = sys.stdin.readline()
            if not line:
                raise EOFError
    except UnicodeDecodeError:
        raise UsageFault("the prompt is not UTF-8") from None
    line = line.rstrip("\r\n")
    refuse_broken([line], "the prompt")
    return line
