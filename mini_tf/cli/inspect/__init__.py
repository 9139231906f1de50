"""`minitf inspect`: views of a trained model, one file each, here or in `cli/inspect` of a paper or a package.

A view that cannot be used is left out of the help, and refused where it is called.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import typer

from mini_tf.cli.examples import EXAMPLES
from mini_tf.cli.inspect import (
    align,
    answers,
    attention,
    coverage,
    crash,
    model,
    positions,
    senses,
    softmax,
    syntax,
    tokens,
    word,
)
from mini_tf.cli.terminal.help import HelpGroup, add, group
from mini_tf.cli.terminal.repeated_options import refuse_repeated
from mini_tf.recipe.kind_folders import VIEWS, FoundKind, KindFault, find_kind, kinds_by_word, own_folders
from mini_tf.recipe.kinds import added_module


class _Views(HelpGroup):
    """The views of minitf and its papers, and those of installed packages, which are imported only when asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        words = dict.fromkeys([*super().list_commands(ctx), *sorted(kinds_by_word(VIEWS))])
        return [word for word in words if self._is_usable(ctx, word)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        kind = find_kind(VIEWS, cmd_name) if cmd_name in kinds_by_word(VIEWS) else None
        command = super().get_command(ctx, cmd_name)
        if command is not None or kind is None or kind.folder == own_folders()[0]:
            return command
        return _command(kind)

    def _is_usable(self, ctx: Any, word: str) -> bool:
        with suppress(KindFault):
            return self.get_command(ctx, word) is not None
        return False


def view_of(kind: FoundKind) -> tuple[Callable[..., None], tuple[str, ...]]:
    """The function and the examples of a view that a paper or a package adds. KindFault if it cannot be used."""
    module = added_module(kind)
    body, examples = getattr(module, kind.word, None), getattr(module, "EXAMPLES", None)
    if not callable(body) or not examples:
        raise kind.unusable(f"the module must define EXAMPLES and a command {kind.word}")
    return body, tuple(examples)


def _command(kind: FoundKind) -> Any:
    body, examples = view_of(kind)
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    add(alone, f"inspect {kind.word}", body, examples=examples)
    command = typer.main.get_command(alone)
    refuse_repeated(command)
    return command


app = group("Views of a trained model: attention, words, positions, parameters, ...", _Views)
add(app, "inspect attention", attention.attention)
add(app, "inspect align", align.align)
add(app, "inspect coverage", coverage.coverage)
add(app, "inspect word", word.word)
add(app, "inspect syntax", syntax.syntax)
add(app, "inspect senses", senses.senses)
add(app, "inspect answers", answers.answers)
add(app, "inspect model", model.model)
add(app, "inspect tokens", tokens.tokens)
add(app, "inspect positions", positions.positions)
add(app, "inspect softmax", softmax.softmax)
add(app, "inspect crash", crash.crash)
for _view in (_view for paper in own_folders()[1:] for _view in paper.kinds(VIEWS)):
    with suppress(KindFault):
        _body, EXAMPLES[f"inspect {_view.word}"] = view_of(_view)
        add(app, f"inspect {_view.word}", _body)
