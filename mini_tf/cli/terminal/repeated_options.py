"""Refuses an option that is given twice, of which Click would silently ignore the first."""

from collections import Counter
from typing import Any

import typer


def refuse_repeated(command: Any) -> None:
    """Make all commands of a Typer program refuse a repeated option, unless it takes several values or is a flag like
    --json.
    """
    for one in getattr(command, "commands", {}).values():
        refuse_repeated(one)
    parse = command.parse_args

    def parse_once(context: Any, arguments: list[str]) -> Any:
        _, _, given = command.make_parser(context).parse_args(args=list(arguments))
        for parameter, times in Counter(given).items():
            if times > 1 and _takes_one(parameter):
                name = "/".join(
                    [next(name for name in parameter.opts if name.startswith("--")), *parameter.secondary_opts]
                )
                raise typer.BadParameter(f"given {times} times, but takes one value", ctx=context, param_hint=name)
        return parse(context, arguments)

    command.parse_args = parse_once


def _takes_one(parameter: Any) -> bool:
    if parameter.param_type_name != "option" or parameter.multiple or parameter.count:
        return False
    return not parameter.is_flag or bool(parameter.secondary_opts)
