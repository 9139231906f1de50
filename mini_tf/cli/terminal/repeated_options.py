"""An option of one value is given once: of two values the last would win, and the first would be lost without a word."""

from collections import Counter
from typing import Any

import typer


def refuse_repeated(command: Any) -> None:
    """Make a Typer program's commands, and those below them, refuse an option that is repeated, unless it takes several values.

    A switch such as --json may come again; of --stream and --no-stream one is given.
    """
    for one in getattr(command, "commands", {}).values():
        refuse_repeated(one)
    parse = command.parse_args

    def parse_once(context: Any, arguments: list[str]) -> Any:
        _, _, given = command.make_parser(context).parse_args(args=list(arguments))
        for parameter, times in Counter(given).items():
            if times > 1 and _takes_one(parameter):
                name = "/".join([next(name for name in parameter.opts if name.startswith("--")), *parameter.secondary_opts])
                raise typer.BadParameter(f"given {times} times, but takes one value", ctx=context, param_hint=name)
        return parse(context, arguments)

    command.parse_args = parse_once


def _takes_one(parameter: Any) -> bool:
    if parameter.param_type_name != "option" or parameter.multiple or parameter.count:
        return False
    return not parameter.is_flag or bool(parameter.secondary_opts)
