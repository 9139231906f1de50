"""`minitf inspect`: the views of minitf, its papers and installed packages, each a command made from its settings.

Views import torch, which --help must not. So the settings are outlined from the source of the view, and its module is
imported when the command runs. What is no literal in the source needs the import, which only makes --help slow.
"""

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.terminal import completion, files
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT
from mini_tf.cli.terminal.gate_checks import parse_gates, refuse_missed
from mini_tf.cli.terminal.help import HelpGroup, LazyCommand, paragraphs
from mini_tf.cli.terminal.loading import at_terminal, check_run, loading_torch, open_model
from mini_tf.cli.terminal.options import GATES, parameter
from mini_tf.recipe.kind_folders import FoundKind, KindFault, find_kind, kinds_by_word, own_folders
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.inspection import View, ViewSettings

PACKAGE = "inspection"
_TYPES = {"str": str, "int": int, "bool": bool, "Path": Path, "tuple[str, ...]": tuple[str, ...]}
TYPES = _TYPES | {f"{name} | None": of | None for name, of in _TYPES.items()}
"""Types of options by their source."""
BOUNDS = (("ge", "min"), ("le", "max"))
"""Bounds of pydantic, and their names in Typer."""


class ViewCommand(LazyCommand):
    """The command of a view, whose source also has its help."""

    def __init__(self, kind: FoundKind, name: str | None = None, panel: str | None = None) -> None:
        self.kind, self.panel = kind, panel
        super().__init__(name or kind.word)

    def load(self) -> tuple[Callable[..., None], Sequence[str]]:
        settings = outline(self.kind)
        return _body(self.kind.word, settings), settings.EXAMPLES

    rich_help_panel = property(lambda self: self.panel or declared(self.kind, "PANEL"), lambda self, value: None)
    help = property(lambda self: paragraphs(describe(self.kind)), lambda self, value: None)


def _body(word: str, settings: "type[ViewSettings]") -> Callable[..., None]:
    """A function with the options of a view as parameters, and its docstring."""

    def show(console: Console, **values: Any) -> None:
        _show(console, word, settings, values)

    show.__name__, show.__doc__ = word, settings.__doc__
    draws = {*files.picture_or_json()[:-1]} & {*settings.FILES}
    return command(files.draws(show) if draws else show, _parameters(settings))


def _parameters(settings: "type[ViewSettings]") -> Iterator[inspect.Parameter]:
    """The options of a view, those that all views share, and last those of the checkpoint and its checks."""
    from mini_tf.inspection import MODEL

    last, meanings = [], settings.meanings()
    for name, field in settings.model_fields.items():
        if not isinstance(field.json_schema_extra, dict):
            continue
        written: Any = field.json_schema_extra["command"]
        bounds = {end: getattr(mark, of) for mark in field.metadata for of, end in BOUNDS if hasattr(mark, of)}
        more = {"help": meanings[name], "metavar": written["metavar"] or None, **bounds}
        more |= {"show_default": written["shown"], "rich_help_panel": written["panel"]}
        more = {key: value for key, value in more.items() if value is not None}
        if written["completion"] is not None:
            more["autocompletion"] = getattr(completion, written["completion"])
        is_list = field.annotation == tuple[str, ...]
        declared = typer.Option(*written["flags"], **more) if written["flags"] else typer.Argument(**more)
        default = inspect.Parameter.empty if field.is_required() else None if is_list else field.default
        made = parameter(name, Annotated[list[str] | None if is_list else field.annotation, declared], default)
        if written["panel"] == MODEL:
            last.append(made)
        else:
            yield made
    if settings.FILES:
        yield parameter("output", OUTPUT, None)
        yield parameter("force", FORCE, False)
    yield from last
    if settings.METRICS:
        yield parameter("gates", GATES, None)


def _show(console: Console, word: str, outlined: "type[ViewSettings]", values: dict[str, Any]) -> None:
    from mini_tf.inspection import ModelViewSettings, ViewOutput
    from mini_tf.recipe.kinds import settings_of

    output, force, gates = (values.pop(name, None) for name in ("output", "force", "gates"))
    named, bounds = files.check(output, outlined.FILES, bool(force)), parse_gates(gates)
    if unknown := next((gate.metric for gate in bounds if gate.metric not in outlined.METRICS), None):
        raise UsageFault(f"--assert {unknown}: not a metric of {word}; available: {', '.join(outlined.METRICS)}")
    if issubclass(outlined, ModelViewSettings):
        check_run(values["run"], device=values.get("device", "auto"))
    with loading_torch():
        cls: Any = settings_of(PACKAGE, word)
    lists = {name for name, field in cls.model_fields.items() if field.annotation == tuple[str, ...]}
    values |= {name: tuple(values[name] or ()) for name in lists & values.keys()}
    settings: ViewSettings = cls(**values)
    printing = ViewOutput(named, console.json, console.say, console.detail, console.show)
    settings.check(printing)
    subject = _open(console, settings)
    with at_terminal(f"computing {word}"):
        view = settings.view(subject, printing)
    folder = getattr(subject, "folder", None)
    title = f"minitf inspect {word} {getattr(folder, 'name', '')}"
    files.write_all(console, named, view.result, lambda suffix: _file_of(view, suffix, title))
    for picture in () if named else view.pictures:
        console.show(picture)
    for note in view.notes:
        console.say(note)
    console.output(run=folder, metrics=view.metrics, result=view.result)
    refuse_missed(bounds, view.metrics or {})


def _open(console: Console, settings: "ViewSettings") -> Any:
    """What the view looks at: a model, a tokenizer, or nothing."""
    from mini_tf.inspection import ModelViewSettings, TokenizerViewSettings

    if isinstance(settings, ModelViewSettings):
        return open_model(settings.run, settings.opened_step, settings.device)
    if isinstance(settings, TokenizerViewSettings):
        from mini_tf.cli.terminal.loading import open_prompt_tokenizer, open_tokenizer

        return (open_prompt_tokenizer if settings.reads_masks else open_tokenizer)(console, settings.source)
    return None


def _file_of(view: "View", suffix: str, title: str) -> bytes:
    """The content of a file with this suffix, except .json. title: of a page, if the view has none."""
    if suffix in view.files:
        return view.files[suffix]()
    if suffix == "html":
        from mini_tf.drawing.pages import page_file, page_of

        return page_file(page_of(title, view.figure, view.pictures, view.notes))
    from mini_tf.drawing.heat_maps import draw  # matplotlib is slow to import

    assert view.figure is not None, "a view without a figure takes no such file"
    return draw(view.figure, suffix)


@cache
def _source(file: Path) -> tuple[ast.ClassDef, str]:
    """The class `Settings` of a file, and its docstring. Raises ValueError if there is none."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == "Settings" and (docstring := ast.get_docstring(node)):
            return node, docstring
    raise ValueError("no class Settings with a docstring")


def describe(kind: FoundKind) -> str:
    """The help of a view, from its source. KindFault if it has none."""
    try:
        return _source(kind.file)[1]
    except (OSError, ValueError, SyntaxError) as error:
        from mini_tf.recipe.kinds import settings_of

        settings_of(PACKAGE, kind.word)  # which says why
        raise kind.unusable(str(error)) from error


def declared(kind: FoundKind, constant: str) -> Any:
    """A constant of a view, from its source; the default of views if it has none or no literal."""
    from mini_tf.inspection import ViewSettings

    with suppress(OSError, ValueError, SyntaxError, AttributeError):
        for statement in _source(kind.file)[0].body:
            if isinstance(statement, ast.Assign) and _name(statement.targets[0]) == constant:
                return _value(statement.value)
    return getattr(ViewSettings, constant)


def outline(kind: FoundKind) -> "type[ViewSettings]":
    """Settings with the same fields and constants as those of a view, but no methods, without importing the view.

    The settings themselves if the source has anything but literals and names of `mini_tf.inspection`.
    """
    from mini_tf import inspection
    from mini_tf.recipe.kind_folders import docstrings_in
    from mini_tf.recipe.kinds import settings_of

    describe(kind)
    node, docstring = _source(kind.file)
    try:
        members: dict[str, Any] = {"__doc__": docstring, "__module__": kind.module, "__annotations__": {}}
        for statement in node.body:
            if isinstance(statement, ast.Assign):
                members |= {_name(target): _value(statement.value) for target in statement.targets}
            elif isinstance(statement, ast.AnnAssign):
                annotation, name = ast.unparse(statement.annotation), _name(statement.target)
                if not annotation.startswith("ClassVar"):
                    members["__annotations__"][name] = TYPES[annotation]
                members[name] = _value(statement.value)
        bases = tuple(getattr(inspection, _name(base)) for base in node.bases)
    except (AttributeError, KeyError, ValueError, TypeError):
        return settings_of(PACKAGE, kind.word)  # type: ignore[return-value]
    inherited = {name: text for base in bases for name, text in base.meanings().items()}
    members["meanings"] = staticmethod(lambda: inherited | docstrings_in(node))  # the class itself has no source
    return type("Settings", bases, members)


def _name(node: ast.expr) -> str:
    if not isinstance(node, ast.Name):
        raise ValueError(f"{ast.unparse(node)} is no name")
    return node.id


def _value(node: ast.expr | None) -> Any:
    """A literal, a name of `mini_tf.inspection`, a call of it, or a tuple of these."""
    from mini_tf import inspection

    if isinstance(node, ast.Name):
        return getattr(inspection, node.id)
    if isinstance(node, ast.Call):
        keywords = {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
        return _value(node.func)(*map(_value, node.args), **keywords)
    if isinstance(node, ast.Tuple):
        parts = ((_value(child.value) if isinstance(child, ast.Starred) else [_value(child)]) for child in node.elts)
        return tuple(part for each in parts for part in each)
    if node is None:
        raise ValueError("no value")
    return ast.literal_eval(node)


class Views(HelpGroup):
    """Commands and views, panel by panel; packages are looked for when a view is listed or called.

    A view that cannot be used is left out of the help, and refused where it is called.
    """

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
        return ViewCommand(kind)

    def _is_usable(self, ctx: Any, word: str) -> bool:
        with suppress(KindFault):
            return bool(self.get_command(ctx, word).help)
        return False


def view_called(word: str) -> FoundKind | None:
    """The view that has this other name."""
    views = (kinds[0] for kinds in kinds_by_word(PACKAGE).values())
    return next((kind for kind in views if word in declared(kind, "ALIASES")), None)
