"""`minitf inspect`: the views of minitf, its papers and installed packages, by name.

A view that cannot be used is left out of the help, and refused where it is called.
"""

from contextlib import suppress
from typing import Any

from mini_tf.cli.inspect.view_command import PACKAGE, ViewCommand, declared
from mini_tf.cli.terminal.help import HelpGroup
from mini_tf.cli.terminal.repeated_options import refuse_repeated
from mini_tf.recipe.kind_folders import KindFault, find_kind, kinds_by_word, own_folders


class Views(HelpGroup):
    """Commands and views, panel by panel; packages are looked for when a view is listed or called."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        views = {kind.word: ViewCommand(kind) for folder in own_folders() for kind in folder.kinds(PACKAGE)}
        self.commands = dict(sorted({**self.commands, **views}.items()))

    def list_commands(self, ctx: Any) -> list[str]:
        from mini_tf.inspection import COMMON

        words = sorted({*super().list_commands(ctx), *kinds_by_word(PACKAGE)})
        usable = [word for word in words if self._is_usable(ctx, word)]
        return sorted(usable, key=lambda word: self.get_command(ctx, word).rich_help_panel != COMMON)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        kind = find_kind(PACKAGE, cmd_name) if cmd_name in kinds_by_word(PACKAGE) else None
        if kind is None or cmd_name in self.commands:
            return super().get_command(ctx, cmd_name)
        view = ViewCommand(kind)
        refuse_repeated(view)
        return view

    def _is_usable(self, ctx: Any, word: str) -> bool:
        with suppress(KindFault):
            return bool(self.get_command(ctx, word).help)
        return False


def view_called(word: str) -> str | None:
    """The view that has this other name."""
    views = (kinds[0] for kinds in kinds_by_word(PACKAGE).values())
    return next((kind.word for kind in views if word in declared(kind, "ALIASES")), None)
