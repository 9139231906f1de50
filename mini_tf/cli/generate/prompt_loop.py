"""The prompt loop at a terminal, until Ctrl-D. A model of chats gets the whole chat with every message.

Ctrl-C stops the current output; at the prompt it ends the loop, within a multi-line prompt only that prompt.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mini_tf.cli.generate.options import OPTIONS, stops
from mini_tf.cli.terminal.console import Console
from mini_tf.cli.terminal.options import CommandLineError
from mini_tf.recipe.text_input import refuse_non_utf8
from mini_tf.system.errors import MinitfError, UsageFault

if TYPE_CHECKING:
    from mini_tf.cli.generate.command import PromptSession

_SET = re.compile(r"-*([\w-]+)(?:=|\s+|$)(.*)", re.DOTALL)
RESET = "default"
"""The value that resets an option."""
PROMPT, MORE = "> ", "... "
BLOCK = '"""'
"""A line of its own before and after a multi-line prompt."""
HELP = f"""\
/set NAME VALUE  change an option, as in /set temperature 0.7; the value {RESET} resets it
/set             show all options and their values
/retry           run the last prompt again with another seed
/reset           begin a new chat, with a model that answers messages
/quit            quit; so do /exit and Ctrl-D
{BLOCK}              on a line of its own: begin or end a multi-line prompt
//TEXT           use /TEXT as the prompt
Ctrl-C stops the output; at the prompt it quits."""


def prompt_loop(session: "PromptSession", options: Mapping[str, Any]) -> int:
    """Run the loop; returns the exit code. options: the initial ones. A refused prompt prints one line, and the loop
    continues.
    """
    session.open(options)  # an option that the model does not support is refused at once
    with suppress(ImportError):
        import readline  # line editing and history for input()

        # In the C locale readline takes bytes above 127 for commands.
        for setting in ("input-meta on", "output-meta on", "convert-meta off"):
            readline.parse_and_bind(f"set {setting}")
    console, trained, recipe = session.console, session.trained, session.trained.recipe
    step = f"step {trained.step}" if isinstance(trained.step, int) else f"checkpoint {trained.step}"
    description = f"{recipe.model.kind}, {recipe.objective.kind}; {session.settings.DESCRIPTION}"
    console.say(f"{trained.folder.name}, {step}: {description}")
    console.say("/help lists commands, Ctrl-C stops the output, /quit ends")
    loop = _Loop(session, options)
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


class _Loop:
    """The state between prompts: options, last prompt, next seed."""

    def __init__(self, session: "PromptSession", options: Mapping[str, Any]) -> None:
        self.session, self.options = session, _LoopOptions(session, options)
        self.chat: list[dict[str, str]] = []
        """The messages so far, if the model answers messages."""
        self.last: tuple[str, list[dict[str, str]]] | None = None
        """The last prompt, and the chat before it."""
        self.seed = -1
        self.replies = Console(color=session.console.color)
        """Prints replies to commands even with -q."""

    def turn(self) -> None:
        """One prompt, or one command."""
        line = _read_line(PROMPT)
        if line.startswith("//"):
            self._run(line[1:])
        elif line.lstrip().startswith("/"):
            self._command(*line.lstrip().partition(" ")[::2])
        elif line == BLOCK:
            self._run(_block())
        else:
            self._run(line)

    def _command(self, word: str, rest: str) -> None:
        if word == "/help":
            self._reply(HELP.splitlines())
        elif word == "/set":
            self._reply(self.options.change(rest.strip()))
        elif word == "/retry":
            self._retry()
        elif word == "/reset":
            if not self.session.settings.ANSWERS_MESSAGES:
                raise UsageFault("/reset: each prompt is independent of those before it")
            self.chat = []
        elif word in ("/quit", "/exit"):
            raise EOFError
        else:
            raise UsageFault(f"no such command: {word}", hint="/help shows them; //TEXT is the prompt /TEXT")

    def _reply(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.replies.say(line)

    def _retry(self) -> None:
        """Run the last prompt with the next seed; UsageFault where there is none or sampling is off."""
        options, without = self.options.explicit, self.session.settings.UNSUPPORTED_OPTIONS
        generate = self.session.trained.recipe.generate
        if self.last is None:
            raise UsageFault("/retry: no prompt has been given yet")
        if "seed" in without or options.get("greedy") or generate.model_copy(update=options).greedy:
            hint = None if "seed" in without else "/set temperature 0.8 enables sampling"
            raise UsageFault("/retry: greedy decoding does not depend on the seed", hint=hint)
        prompt, self.chat = self.last
        self._run(prompt, self.seed + 1)

    def _run(self, prompt: str, seed: int | None = None) -> None:
        """Run a prompt. Without a fixed seed each prompt takes the next one, so a repeated prompt gives a new text.

        A chat goes on with the first answer; one that is interrupted or empty is no part of it.
        """
        if not prompt:
            return
        options = self.options.explicit
        self.seed = options.get("seed", self.seed + 1) if seed is None else seed
        self.last = prompt, self.chat
        if "seed" not in self.session.settings.UNSUPPORTED_OPTIONS:
            options = options | {"seed": self.seed}
        console, message, whole = self.session.console, {"role": "user", "content": prompt}, _is_chat(prompt)
        text = json.dumps({"messages": [*self.chat, message]}) if self.chat and not whole else prompt
        try:
            [result] = self.session.print_outputs(self.session.open(options), [text])
            answer = result["texts"][0] if self.session.settings.ANSWERS_MESSAGES else ""
            if answer.strip() and not whole:
                self.chat = [*self.chat, message, {"role": "assistant", "content": answer}]
        except KeyboardInterrupt:
            if console.json:
                console.close(130, MinitfError("interrupted"))
            else:
                console.print_output("")


class _LoopOptions:
    """Options of the loop, which `/set` parses and checks as the command line does.

    explicit: values of options that differ from the run's own, by name.
    """

    def __init__(self, session: "PromptSession", options: Mapping[str, Any]) -> None:
        self.explicit, self._session = dict(options), session
        assert session.console.context is not None, "the command was called by the command line"
        self._context: Any = session.console.context
        self._parameters: dict[str, Any] = {
            parameter.name: parameter for parameter in self._context.command.params if parameter.name in OPTIONS
        }

    def change(self, assignment: str) -> list[str]:
        """Apply "temperature 0.7"; returns lines with the new values. UsageFault changes nothing."""
        if not assignment:
            unsupported = self._session.settings.UNSUPPORTED_OPTIONS
            return [*self._lines(name for name in self._parameters if name not in unsupported)]
        match = _SET.fullmatch(assignment)
        name = match[1].replace("-", "_") if match else assignment
        if match is None or name not in self._parameters:
            from mini_tf.recipe.values import show
            from mini_tf.system.errors import suggest

            way = "/set alone shows all options"
            hint = suggest(name, self._parameters, way, lambda meant: meant.replace("_", "-"))
            raise UsageFault(f"/set: no such option {show(assignment.split()[0])}", hint=hint)
        value = match[2].strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":  # as a shell takes it
            value = value[1:-1]
        if value or self._parameters[name].is_flag:
            self._replace(name, value)
        return [*self._lines([name])]

    def _replace(self, name: str, value: str) -> None:
        parameter, changed = self._parameters[name], {key: old for key, old in self.explicit.items() if key != name}
        if value != RESET:
            new = self._parse(parameter, name, value)
            changed |= {name: stops(new) if name == "stop" else new}
        try:
            self._session.open(changed)
        except UsageFault as fault:
            others = [other.replace("_", "-") for other in self.explicit if other != name]
            hint = fault.hint or f"/set {others[0] if len(others) == 1 else 'OPTION'} {RESET} resets the other option"
            if name in self._session.settings.UNSUPPORTED_OPTIONS:
                hint = "/set shows the options of this model"
            raise UsageFault(fault.message, hint=hint) from None
        self.explicit = changed

    def _parse(self, parameter: Any, name: str, value: str) -> Any:
        """The value as the command line parses it."""
        option = f"--{name.replace('_', '-')}"
        arguments = [f"{option}={value}"]
        if parameter.is_flag:
            if value not in ("", "on", "off"):
                raise UsageFault(f"/set {option[2:]}: must be on, off or {RESET}, got {value}")
            if value == "off":
                return False
            arguments = [option]
        try:
            command, info = self._context.command, self._context.info_name
            parsed = command.make_context(info, ["RUN", *arguments], parent=self._context.parent).params
        except CommandLineError as error:
            raise UsageFault(f"/set: {error.format_message().rstrip('.')}") from None  # type: ignore[attr-defined]
        return parsed[name]

    def _lines(self, names: Iterable[str]) -> Iterator[str]:
        trained, width = self._session.trained, max(map(len, self._parameters))
        defaults = {
            "context": trained.generation_context,
            "num_samples": 1,
            "greedy": False,
            "seed": "a new one per prompt",
        }
        defaults |= {"logprobs": "none", "n_best": "none", "stream": "at a terminal"}
        defaults |= {**trained.recipe.generate.model_dump(), **self._session.settings.DEFAULT_OPTIONS}
        for name in names:
            value = (
                _format(self.explicit[name]) if name in self.explicit else f"{_format(defaults.get(name))} (default)"
            )
            yield f"{name.replace('_', '-'):<{width}}  {value}"


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return " ".join(map(repr, value)) or "none"
    return "auto" if value is None else str(value)


def _is_chat(prompt: str) -> bool:
    """Whether a prompt is a chat of its own: JSON with messages."""
    with suppress(ValueError, RecursionError):
        parsed = json.loads(prompt)
        return isinstance(parsed, dict) and "messages" in parsed
    return False


def _block() -> str:
    """The lines of a multi-line prompt; empty after Ctrl-C."""
    lines = list[str]()
    try:
        while (line := _read_line(MORE)) != BLOCK:
            lines.append(line)
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return ""
    return "\n".join(lines)


def _read_line(prompt: str) -> str:
    """The next line; EOFError at the end, UsageFault if it is not UTF-8."""
    try:
        if sys.stdout.isatty():
            line = input(prompt)
        else:  # input() would write its prompt to stdout, which is redirected
            sys.stderr.write(prompt)
            sys.stderr.flush()
            line = sys.stdin.readline()
            if not line:
                raise EOFError
    except UnicodeDecodeError:
        raise UsageFault("the prompt is not UTF-8") from None
    line = line.rstrip("\r\n")
    refuse_non_utf8([line], "the prompt")
    return line
