"""Layout of `--help`: panels by topic, arguments before options, examples at the end. Typer and rich draw it."""

import importlib
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import cached_property
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from mini_tf.cli.usage.commands import COMMANDS

MESSAGES = "Messages"
"""The panel of the options that all commands share."""


class HelpCommand(TyperCommand):
    """A command with this help."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.help = paragraphs(self.help)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses an option that is given twice, of which Click would silently ignore the first."""
        _, _, parameters = self.make_parser(ctx).parse_args(args=[*args])
        for parameter, times in Counter(parameters).items():
            if times > 1 and _takes_one_value(parameter):
                name = next(name for name in parameter.opts if name.startswith("--"))
                name = "/".join([name, *parameter.secondary_opts])
                raise typer.BadParameter(f"given {times} times, but takes one value", ctx=ctx, param_hint=name)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*_usage_of_arguments(self), "[OPTIONS]"]

    def get_help_option(self, ctx: Any) -> Any:
        return _in_messages(super().get_help_option(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _hide_types(self)
        with _colors_only_on_a_terminal():
            super().format_help(ctx, formatter)


class HelpGroup(TyperGroup):
    """A group of commands with this help, in the order of the app; without a command it shows it, on stderr."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.help = paragraphs(self.help)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            with redirect_stdout(sys.stderr):
                ctx.get_help()
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def get_help_option(self, ctx: Any) -> Any:
        return _in_messages(super().get_help_option(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _hide_types(self)
        with _colors_only_on_a_terminal():
            super().format_help(ctx, formatter)


class LazyCommand(HelpCommand):
    """A command whose options are made when they are first asked for; a list of commands asks for the help alone."""

    def __init__(self, name: str, help: str | None = None, panel: str | None = None) -> None:
        super(HelpCommand, self).__init__(name, help=help, rich_help_panel=panel, rich_markup_mode="rich")

    def load(self) -> tuple[Callable[..., None], Sequence[str]]:
        """The function of the command, and its examples."""
        raise NotImplementedError

    @cached_property
    def made(self) -> Any:
        """The command with its options."""
        body, examples = self.load()
        alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
        alone.command(cls=HelpCommand, epilog=_examples(examples))(body)
        return typer.main.get_command(alone)

    params = property(lambda self: self.made.params, lambda self, value: None)
    callback = property(lambda self: self.made.callback, lambda self, value: None)
    epilog = property(lambda self: self.made.epilog, lambda self, value: None)


class ImportedCommand(LazyCommand):
    """A command of COMMANDS, which is imported when its options are first asked for. path: such as "data show"."""

    def __init__(self, path: str) -> None:
        self.path, self.described = path, COMMANDS[path]
        super().__init__(path.rpartition(" ")[2], paragraphs(self.described.help), self.described.panel)

    def load(self) -> tuple[Callable[..., None], Sequence[str]]:
        words = self.path.split()
        module, _, function = (self.described.function or f"{words[0]}:{words[-1]}").partition(":")
        return getattr(importlib.import_module(f"mini_tf.cli.{module}"), function), self.described.examples


def _examples(lines: Sequence[str]) -> str:
    """The epilog of a command; `[` is escaped, since rich reads markup there."""
    return "\n".join(["Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)]).replace(
        "[", "\\["
    )


def paragraphs(text: str | None) -> str | None:
    """A docstring with each paragraph on one line, which rich wraps to the terminal."""
    return text and "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n")).replace(
        "[", "\\["
    )


def _takes_one_value(parameter: Any) -> bool:
    """Not: an argument, an option that takes several values, and a flag like --json, which says the same twice."""
    if parameter.param_type_name != "option" or parameter.multiple or parameter.count:
        return False
    return not parameter.is_flag or bool(parameter.secondary_opts)


def _usage_of_arguments(command: Any) -> Sequence[str]:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    return [argument.metavar for argument in arguments if argument.metavar]


def _in_messages(option: Any) -> Any:
    if option is not None:
        option.rich_help_panel, option.metavar = MESSAGES, ""
    return option


def _hide_types(command: Any) -> None:
    """Leave out `<bool>` of a flag, and `<list[str]>` of an argument whose metavar says what it is."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None
        elif getattr(parameter, "is_flag", False):
            parameter.metavar = ""


@contextmanager
def _colors_only_on_a_terminal() -> Iterator[None]:
    """Typer prints ANSI codes even into files if GITHUB_ACTIONS is set; rich handles NO_COLOR and TERM."""
    from typer import rich_utils

    before, rich_utils.FORCE_TERMINAL = rich_utils.FORCE_TERMINAL, None
    try:
        yield
    finally:
        rich_utils.FORCE_TERMINAL = before
