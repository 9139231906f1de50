"""The nearest way out of a command line that minitf does not have, above all where other tools have it."""

import os
import re
import shlex
from itertools import takewhile
from typing import Any

from mini_tf.cli.terminal.console import Console, refuse
from mini_tf.cli.terminal.loading import split_options
from mini_tf.cli.usage import commands
from mini_tf.cli.usage.other_tools import COMMANDS, HUGGING_FACE, OPTIONS, VALUES, WITHOUT_COMMAND
from mini_tf.recipe.kind_folders import KindFault
from mini_tf.recipe.parsing.run_paths import names_run
from mini_tf.system.errors import UsageFault

_WORD = re.compile("[A-Z]+")
_USUAL = {
    "minitf recipe": "show",
    "minitf data": "show",
    "minitf tokenizer": "encode",
    "minitf runs": "show",
    "minitf inspect": "attention",
}
"""The command of a group that is meant where its argument was given alone."""
_EXAMPLE = re.compile(
    r"\b(?:(?P<run>RUN)|(?P<other>OTHER)|(?P<recipe>(?<=cost |show )RECIPE)|(?P<name>hf:NAME)"
    r'|(?P<file>my\.txt|texts\.txt|reviews\.csv|my\.conll|FILE))\b|(?P<text>"a (?:prompt|text|\[MASK\])")'
)
"""What a hint has in place of the words that are given."""


def explain(error: Exception, arguments: list[str]) -> int:
    """Print an error of click in one line that ends with what to type; with --json an envelope. Returns exit code 2."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "minitf"
    message = str(getattr(error, "format_message", lambda: str(error))()).rstrip(".")
    kind = type(error).__name__
    if kind == "NoSuchOption":
        option = str(getattr(error, "option_name", ""))
        message = message.replace(option, _as_typed(option, arguments).partition("=")[0])
        hint = _for_option(option, path, context, arguments) or _as_key(error, arguments)
        message = message if hint is None else message.partition(" (Possible")[0]
    elif kind == "MissingParameter":
        hint = _for_missing(error, path, arguments[len(path.split()) - 1 :])
    elif context is not None and not hasattr(context.command, "commands"):
        message = message.replace("Value error, ", "")
        hint = _for_value(error, context, arguments)
    else:
        hint = _for_command(context, arguments[len(path.split()) - 1 :])
        message, _, meant = message.partition(". Did you mean")
        hint = hint or (f"did you mean{meant}" if meant else None)
    hint = hint or _as_text(error, arguments) or f"see `{path} --help`"
    return refuse(
        Console(command=path.partition(" ")[2], json="--json" in arguments), UsageFault(f"{path}: {message}", hint=hint)
    )


def _for_missing(error: Exception, path: str, typed: list[str]) -> str | None:
    """A hint for an argument or a required option that was left out: an example, of the option with the last word."""
    missing, context = getattr(error, "param", None), getattr(error, "ctx", None)
    words, options = split_options(typed, _flags(context.command) if context else ())
    if "-o" in getattr(missing, "opts", ()):
        if words[1:] and "=" not in words[-1] and not os.path.isfile(words[-1]):
            return _output(words[-1])
        if options:
            return f"-o {getattr(missing, 'metavar', None)}"
    command = commands.COMMANDS.get(path.removeprefix("minitf "))
    return None if command is None else f"for example: {command.examples[0]}"


def _flags(command: Any) -> set[str]:
    """The options of a command that take no value."""
    flags = (parameter for parameter in command.params if getattr(parameter, "is_flag", False))
    return {name for flag in flags for name in (*flag.opts, *flag.secondary_opts)}


def _output(word: str) -> str:
    """The -o that `minitf export` lacks. word: the last argument, a folder unless it is a format."""
    from mini_tf.recipe.kinds import listing

    if word.lower() in HUGGING_FACE:
        return "-o DIR"
    formats, (folder, _, suffix) = (*listing("hf.families"), *listing("hf.formats")), word.rpartition(".")
    if word in formats:
        return f"--to {word} -o DIR"
    return f"--to {suffix} -o {shlex.quote(folder)}" if folder and suffix in formats else f"-o {shlex.quote(word)}"


def _for_value(error: Exception, context: Any, arguments: list[str]) -> str | None:
    """A hint for a value that an option does not have, or for a file beside a run, which is given as --data."""
    names, has_data = getattr(getattr(error, "param", None), "opts", ()), "--data" in _options_of(context)
    for word, after in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in names and (hint := VALUES.get(name, {}).get(value if equals else after)):
            return hint if has_data else hint.removesuffix(": --data FILE")
    file = next(filter(os.path.isfile, arguments), None)
    return f"--data {shlex.quote(file)}" if file is not None and has_data else None


def _options_of(context: Any) -> set[str]:
    return {name for parameter in context.command.params for name in parameter.opts}


def _for_command(context: Any, typed: list[str]) -> str | None:
    """A hint for a command that a group does not have."""
    if context is None or not typed:
        return None
    path, word = context.command_path, _as_command(typed[0])
    if word == "help" and typed[1:]:
        return _for_help(context, typed[1:])
    if hint := COMMANDS.get(path, {}).get(word):
        words, options = split_options(typed[1:])
        return _with_words(_of_words(hint, [*words, *options]), words, options)
    if path == "minitf inspect" and (hint := _for_view(word, typed[1:])):
        return hint
    if path == "minitf":
        groups = [name for name, group in context.command.commands.items() if word in getattr(group, "commands", {})]
        if groups:
            return ", ".join(f"`{shlex.join(['minitf', group, word, *typed[1:]])}`" for group in groups)
    return _for_argument(context, typed)


def _as_command(word: str) -> str:
    """A word as a command would be written: `run_clm.py` is run-clm."""
    return word.removesuffix(".py").replace("_", "-").lower()


def _within(context: Any, name: str) -> Any:
    """The context of a group in that of the program."""
    return type(context)(context.command.get_command(context, name), info_name=name, parent=context)


def _for_help(context: Any, typed: list[str]) -> str | None:
    """A hint for `minitf help COMMAND`, which may be a command of another tool."""
    words = [word for word in split_options(typed)[0] if _as_command(word) != "help"]
    if not words:
        return COMMANDS["minitf"]["help"]
    name = _as_command(words[0])
    command = context.command.get_command(context, name)
    if command is None:
        return _for_command(context, words)
    within = _for_help(_within(context, name), words[1:]) if words[1:] and hasattr(command, "commands") else None
    return within or f"`{context.command_path} {name} --help`"


def _for_view(word: str, typed: list[str]) -> str | None:
    """A hint for another name of a view: with the words that were given, or an example where a run stands alone."""
    from mini_tf.cli.inspect_views import ViewCommand, declared, view_called

    view = view_called(word)
    if view is None:
        return None
    command = ViewCommand(view)
    try:
        metavars = [str(parameter.metavar) for parameter in command.params if parameter.param_type_name == "argument"]
    except KindFault:
        return f"`minitf inspect {view.word}`"  # which says why it cannot be used
    words, options = split_options(typed, _flags(command))
    takes_run = any("RUN" in _WORD.findall(metavar) for metavar in metavars)
    if not takes_run:
        words = [word for word in words if not names_run(word)]
    if words and not all(map(names_run, words)):
        return f"`{shlex.join(['minitf', 'inspect', view.word, *words, *options])}`"

    def names(options_: list[str]) -> set[str]:
        before = {option.partition("=")[0] for option in options_}
        return {parameter.name for parameter in command.params if before & {*parameter.opts}}

    lines = declared(view, "EXAMPLES") or (f"minitf inspect {view.word}{' last' if takes_run else ''}",)
    examples = [split_options(shlex.split(line), _flags(command)) for line in lines]
    example, shown = max(examples, key=lambda example: len(names(example[1]) & names(options)))
    if takes_run:
        at = 3 if example[1:2] == ["inspect"] else 2  # `minitf inspect-attention RUN`
        example[at : at + 1] = words[:1] or ["RUN"]
    return f"`{shlex.join([*example, *(() if names(shown) & names(options) else shown), *options])}`"


def _of_words(hint: str, words: list[str]) -> str:
    """A hint, or another one that what was given asks for: a run with a text predicts, only a run can be inspected."""
    from mini_tf.recipe.arguments import is_data_file, known_data

    has_run = any(map(names_run, words))
    if "hf:NAME" in hint and words and (known := known_data(words[0])):
        return known
    if hint.startswith("`minitf finetune") and has_run and any(map(_is_text, words)):
        return COMMANDS["minitf"]["classify"]
    if hint.startswith("`minitf inspect model") and not has_run:
        if any(map(is_data_file, words)):
            return COMMANDS["minitf data"]["count"]
        if any(map(_is_recipe, words)):
            return COMMANDS["minitf"]["estimate"]
    return hint


def _with_words(hint: str, words: list[str], options: list[str]) -> str:
    """A hint with the runs, file, text and recipe that were typed in place of its RUN, OTHER, my.txt, "a text" and
    RECIPE. A run that an option names, as `--step last`, only counts where no word does.
    """
    arguments, runs = [*words, *options], [*filter(names_run, words)] or [*filter(names_run, options)]
    name = next((f"hf:{word.removeprefix('hf:')}" for word in arguments if not word.startswith("-")), None)
    replacements = {
        "run": runs[:1],
        "other": runs[1:],
        "file": [*filter(os.path.isfile, arguments)][:1],
        "recipe": [*filter(_is_recipe, arguments)][:1],
        "name": [] if name is None else [name],
        "text": [*filter(_is_text, arguments)][:1],
    }
    return _EXAMPLE.sub(lambda example: shlex.join(replacements[str(example.lastgroup)]) or example[0], hint)


def _is_text(word: str) -> bool:
    return " " in word and not word.startswith("-") and not os.path.exists(word)


def _is_recipe(word: str) -> bool:
    from mini_tf.recipe.arguments import presets

    return word in presets() or word.endswith((".yaml", ".yml"))


def _for_argument(context: Any, typed: list[str]) -> str | None:
    """A hint for runs, recipes or files in place of a command, which may stand directly behind them."""
    from mini_tf.recipe.arguments import is_override, presets

    def is_argument(word: str) -> bool:
        is_known = word in presets() or is_override(word) or os.path.exists(word) or names_run(word)
        return is_known and context.command.get_command(context, word) is None

    path, leading = context.command_path, [*takewhile(is_argument, typed)]
    if not leading:
        return None
    [name, *more], rest = typed[len(leading) :] or [""], typed[len(leading) :]
    command = context.command.get_command(context, name)
    if hasattr(command, "commands"):
        return _for_command(_within(context, name), [*leading, *more])
    if command is None and (hint := _for_command(context, [name, *leading, *more])):
        return hint
    if command is None:
        name, more = _USUAL.get(path) or ("generate" if names_run(leading[0]) else "pretrain"), rest
        name = "model" if name == "attention" and not more else name  # which needs no text
    noun = "view" if path == "minitf inspect" else "command"
    return f"the {noun} comes first: {path} {name} {shlex.join([*leading, *more])}"


def _for_option(option: str, path: str, context: Any, arguments: list[str]) -> str | None:
    """A hint for an option that a command does not have."""
    command = path.partition(" ")[2]
    if not command:
        typed = _as_typed(option, arguments)
        behind = [argument for argument in arguments if argument != typed]
        moved = f"options stand behind the command: {shlex.join(['minitf', *behind, typed])}" if behind else None
        return WITHOUT_COMMAND.get(typed) or moved
    has = {"training" if command in ("pretrain", "finetune") else command}
    if command == "chat":
        has.add("generate")
    for parameter in () if context is None else context.command.params:
        has |= {*parameter.opts} if parameter.param_type_name == "option" else {*_WORD.findall(parameter.metavar or "")}
    hints = (words.get(option.replace("_", "-")) for name, words in OPTIONS.items() if name in has)
    behind = [word.partition("=")[2] if _is_option(word, option) else word for word in arguments]
    words = {"command": command, "moved": f"`{shlex.join(['minitf', *filter(None, behind)])}`"}
    return next((hint.format(**words) for hint in hints if hint is not None), None)


def _as_key(error: Exception, arguments: list[str]) -> str | None:
    """A hint with the recipe keys for unknown options; None if the command takes no KEY=VALUE or no key is similar."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    takes_settings = context is not None and any(
        "KEY=VALUE" in str(getattr(parameter, "metavar", "")) for parameter in context.command.params
    )
    if option is None or context is None or not takes_settings:
        return None
    from mini_tf.recipe.keys import suggest_key

    if suggest_key(option) is None:
        return None
    has, settings = _options_of(context), []
    for word, after in zip(arguments, [*arguments[1:], "-"], strict=True):
        name, _, value = word.partition("=")
        is_option = name.startswith("--") and name.replace("_", "-") not in has
        if is_option and not _for_option(name, context.command_path, context, arguments) and (key := suggest_key(name)):
            value = value or ("VALUE" if after.startswith("-") else after)
            settings.append(shlex.quote(key if "=" in key else f"{key}={value}"))
    return f"settings are written without dashes: {' '.join(settings)}"


def _as_text(error: Exception, arguments: list[str]) -> str | None:
    """A hint for a text that begins with -, which was read as an option."""
    if getattr(error, "option_name", None) is None:
        return None
    texts = [text for text in arguments if text.startswith("-") and any(map(str.isspace, text))]
    return f"a text that begins with - stands behind --: -- {shlex.quote(texts[0])}" if texts else None


def _is_option(word: str, option: str) -> bool:
    return word.partition("=")[0].replace("_", "-") == option.replace("_", "-")


def _as_typed(option: str, arguments: list[str]) -> str:
    """The argument that an option was read from, whose underscores are dashes by now."""
    return next((typed for typed in arguments if _is_option(typed, option)), option)
