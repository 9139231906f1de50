"""The prompt loop: somebody at a terminal asks, the model answers, until Ctrl-D.

Ctrl-C while an answer is written ends that answer; at the prompt it ends the loop, within a prompt of several lines that prompt.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mini_tf.cli.generate.answering import Answering
from mini_tf.cli.generate.set_options import BACK, SetOptions
from mini_tf.cli.terminal.console import Console
from mini_tf.cli.terminal.lines import refuse_broken
from mini_tf.system.errors import MinitfError, UsageFault

PROMPT, MORE = "> ", "... "
BLOCK = '"""'
"""Stands alone on the line before and on the line after a prompt of several lines."""
HELP = f"""\
/set NAME VALUE  change an option of `minitf generate`, as in /set temperature 0.7; the value {BACK} takes it back
/set             show all options and their values
/retry           answer the last prompt again, with another seed
/exit            leave, as Ctrl-D does
{BLOCK}              alone on a line begins a prompt of several lines, and ends it
//TEXT           the prompt /TEXT, which is no command
Ctrl-C ends an answer; at the prompt it leaves."""


def prompt_loop(answering: Answering, given: Mapping[str, Any]) -> int:
    """Ask and answer; the exit code. given: the options at the beginning.

    What cannot be answered is told in a line, and the loop goes on.
    """
    with suppress(ImportError):
        import readline  # input() then edits the line and remembers others

        # In the C locale readline takes bytes above 127 for commands.
        for setting in ("input-meta on", "output-meta on", "convert-meta off"):
            readline.parse_and_bind(f"set {setting}")
    console, loop = answering.console, _Loop(answering, given)
    for line in _banner(answering):
        console.say(line)
    while True:
        try:
            loop.turn()
        except EOFError:
            console.say("")
            return 0
        except KeyboardInterrupt:
            console.say("")
            raise
        except MinitfError as refusal:
            console.close(refusal.exit_code, refusal)


def _banner(answering: Answering) -> list[str]:
    trained, recipe = answering.trained, answering.trained.recipe
    step = f"step {trained.step}" if isinstance(trained.step, int) else f"checkpoint {trained.step}"
    what = f"{recipe.model.kind}, {recipe.objective.kind}; it {answering.settings.DOES}"
    return [f"{trained.folder.name}, {step}: {what}", "/help shows the commands, Ctrl-C ends an answer, Ctrl-D leaves"]


class _Loop:
    """What is remembered between two prompts: the options, the last prompt, and the seeds that were used."""

    def __init__(self, answering: Answering, given: Mapping[str, Any]) -> None:
        self.answering, self.options = answering, SetOptions(answering, given)
        self.last: str | None = None
        self.seed = -1
        self.replies = Console(color=answering.console.color)
        """What was asked for by a command is shown even with -q."""

    def turn(self) -> None:
        """One prompt, or one command."""
        line = _ask(PROMPT)
        if line.startswith("//"):
            self._answer(line[1:])
        elif line.lstrip().startswith("/"):
            self._command(*line.lstrip().partition(" ")[::2])
        elif line == BLOCK:
            self._answer(_block())
        else:
            self._answer(line)

    def _command(self, word: str, rest: str) -> None:
        if word == "/help":
            self._reply(HELP)
        elif word == "/set":
            self._reply("\n".join(self.options.change(rest.strip())))
        elif word == "/retry":
            self._retry()
        elif word == "/exit":
            raise EOFError
        else:
            raise UsageFault(f"no such command: {word}", hint="/help shows them; //TEXT is the prompt /TEXT")

    def _reply(self, text: str) -> None:
        for line in text.splitlines():
            self.replies.say(line)

    def _retry(self) -> None:
        """UsageFault where there is nothing to retry, or another seed makes no difference."""
        given, recipe, without = self.options.given, self.answering.trained.recipe, self.answering.settings.WITHOUT
        if self.last is None:
            raise UsageFault("/retry: there was no prompt yet")
        if "seed" in without or given.get("greedy") or recipe.generate.model_copy(update=given).greedy:
            hint = None if "seed" in without else "/set temperature 0.8 draws tokens"
            raise UsageFault("/retry: the most probable text is always the same, whatever the seed", hint=hint)
        self._answer(self.last, self.seed + 1)

    def _answer(self, prompt: str, seed: int | None = None) -> None:
        """Without a seed of its own every prompt has the next one, since the same is asked again to see another answer."""
        if not prompt:
            return
        given = self.options.given
        self.seed = given.get("seed", self.seed + 1) if seed is None else seed
        self.last = prompt
        if "seed" not in self.answering.settings.WITHOUT:
            given = given | {"seed": self.seed}
        console = self.answering.console
        try:
            self.answering.answer(self.answering.open(given), [prompt])
        except KeyboardInterrupt:
            if console.json:
                console.close(130, MinitfError("interrupted"))
            else:
                console.print_product("")


def _block() -> str:
    """The lines up to the closing mark; nothing where Ctrl-C ends it."""
    lines = list[str]()
    try:
        while (line := _ask(MORE)) != BLOCK:
            lines.append(line)
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return ""
    return "\n".join(lines)


def _ask(prompt: str) -> str:
    """The next line; EOFError at the end, UsageFault where it is not UTF-8."""
    try:
        if sys.stdout.isatty():
            line = input(prompt)
        else:  # input() would write its prompt to stdout, which is somebody's file
            sys.stderr.write(prompt)
            sys.stderr.flush()
            line = sys.stdin.readline()
            if not line:
                raise EOFError
    except UnicodeDecodeError:
        raise UsageFault("the prompt is not UTF-8") from None
    line = line.rstrip("\r\n")
    refuse_broken([line], "the prompt")
    return line
