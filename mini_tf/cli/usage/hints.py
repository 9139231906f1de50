"""The nearest way out of a command line that minitf does not have, above all where other tools have it."""

import os
import re
import shlex
from typing import Any

from mini_tf.cli.terminal.console import Console, refuse
from mini_tf.cli.usage import commands
from mini_tf.cli.usage.other_tools import COMMANDS, HUGGING_FACE, OPTIONS, VALUES, WITHOUT_COMMAND
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
        hint = _for_missing(error, path, arguments)
    elif context is not None and not hasattr(context.command, "commands"):
        message = message.replace("Value error, ", "")
        hint = _for_value(error, context, arguments)
    else:
        hint = _for_command(path, context, arguments)
        message, _, meant = message.partition(". Did you mean")
        hint = hint or (f"did you mean{meant}" if meant else None)
    hint = hint or _as_text(error, arguments) or f"see `{path} --help`"
    return refuse(
        Console(command=path.partition(" ")[2], json="--json" in arguments), UsageFault(f"{path}: {message}", hint=hint)
    )


def _for_missing(error: Exception, path: str, arguments: list[str]) -> str | None:
    """A hint for an argument or a required option that was left out: an example, of the option with the last word."""
    names = getattr(getattr(error, "param", None), "opts", ())
    words = [word for word in arguments if not word.startswith("-")][len(path.split()) - 1 :]
    if len(words) > 1 and "-o" in names and "=" not in words[-1]:
        return _output(words[-1], arguments[-2])
    command = commands.COMMANDS.get(path.removeprefix("minitf "))
    return None if command is None else f"for example: {command.examples[0]}"


def _output(word: str, before: str) -> str:
    """The -o that `minitf export` lacks. word: the last argument, a folder unless it is a format or belongs to the
    option before it.
    """
    from mini_tf.recipe.kinds import listing

    if word in HUGGING_FACE or before.startswith("-"):
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


def _for_command(path: str, context: Any, arguments: list[str]) -> str | None:
    """A hint for a command that a group does not have."""
    if context is None:
        return None
    typed = arguments[len(path.split()) - 1 :]
    if not typed:
        return None
    word = typed[0].removesuffix(".py").replace("_", "-").lower()
    if word == "help" and typed[1:]:
        return _for_help(path, context, typed[1:])
    if hint := COMMANDS.get(path, {}).get(word):
        return _with_words(_of_words(hint, typed[1:]), typed[1:])
    if path == "minitf inspect" and (hint := _for_view(word, typed[1:])):
        return hint
    if path == "minitf":
        groups = [name for name, group in context.command.commands.items() if word in getattr(group, "commands", {})]
        if groups:
            return ", ".join(f"`{shlex.join(['minitf', group, word, *typed[1:]])}`" for group in groups)
    return _for_argument(path, context, typed)


def _for_help(path: str, context: Any, words: list[str]) -> str | None:
    """A hint for `minitf help COMMAND`, which may be a command of another tool."""
    group = context.command.get_command(context, words[0])
    if group is None:
        return _for_command(path, context, [*path.split()[1:], *words])
    named = words[:2] if words[1:] and words[1] in getattr(group, "commands", {}) else words[:1]
    return f"`{path} {shlex.join(named)} --help`"


def _for_view(word: str, words: list[str]) -> str | None:
    """A hint for another name of a view: with the words that were given, or an example where a run stands alone."""
    from mini_tf.cli.inspect_views import declared, view_called

    view = view_called(word)
    if view is None:
        return None
    if words and not all(map(names_run, words)):
        return f"`{shlex.join(['minitf', 'inspect', view.word, *words])}`"
    example = declared(view, "EXAMPLES")[0].split(" ")
    example[2 if "-" in example[1] else 3] = shlex.quote(words[0] if words else "RUN")
    return f"`{' '.join(example)}`"


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


def _with_words(hint: str, words: list[str]) -> str:
    """A hint with the run, file, text and recipe that were given in place of its RUN, my.txt, "a text" and RECIPE."""
    runs = [shlex.quote(word) for word in words if names_run(word)]
    if runs[1:]:
        hint = hint.replace("OTHER", " ".join(runs[1:]))
    if runs:
        hint = hint.replace("RUN", runs[0])
    if file := next(filter(os.path.isfile, words), None):
        hint = re.sub(r"my\.txt|texts\.txt|reviews\.csv|my\.conll|FILE", lambda example: shlex.quote(file), hint)
    if recipe := next(filter(_is_recipe, words), None):
        hint = re.sub("(?<=cost )RECIPE|(?<=show )RECIPE", lambda example: shlex.quote(recipe), hint)
    if name := next((word for word in words if not word.startswith("-")), None):
        hint = hint.replace("hf:NAME", shlex.quote(f"hf:{name.removeprefix('hf:')}"))
    if text := next(filter(_is_text, words), None):
        hint = re.sub(r'"a (prompt|text|\[MASK\])"', lambda example: shlex.quote(text), hint)
    return hint


def _is_text(word: str) -> bool:
    return " " in word and not word.startswith("-") and not os.path.exists(word)


def _is_recipe(word: str) -> bool:
    from mini_tf.recipe.arguments import presets

    return word in presets() or word.endswith((".yaml", ".yml"))


def _for_argument(path: str, context: Any, typed: list[str]) -> str | None:
    """A hint for a run, a recipe or a file in place of a command, which may stand behind it."""
    from mini_tf.recipe.arguments import is_override, presets

    word = typed[0]
    is_run = names_run(word)
    is_recipe = word in presets() or is_override(word) or os.path.exists(word)
    if not (is_run or is_recipe):
        return None
    command = next((name for name in typed[1:] if context.command.get_command(context, name)), None)
    if command is not None:
        typed.remove(command)
    command = command or _USUAL.get(path) or ("generate" if is_run else "pretrain")
    noun = "view" if path == "minitf inspect" else "command"
    return f"the {noun} comes first: {path} {command} {shlex.join(typed)}"


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
    return next((hint.format(command=command) for hint in hints if hint is not None), None)


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


def _as_typed(option: str, arguments: list[str]) -> str:
    """The argument that an option was read from, whose underscores are dashes by now."""
    same = (typed for typed in arguments if typed.partition("=")[0].replace("_", "-") == option.replace("_", "-"))
    return next(same, option)
