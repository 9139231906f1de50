"""The nearest way out of a command line that minitf does not have, above all where other tools have it."""

import os
import re
import shlex
from typing import Any

from mini_tf.cli.terminal.console import Console, refuse
from mini_tf.system.errors import UsageFault

COMMANDS: dict[str, dict[str, str]] = {
    "minitf": {
        "attention": '`minitf inspect-attention RUN "a text"`',
        "chat": "`minitf generate RUN` without a prompt reads one after another from the terminal",
        "classify": "`minitf predict RUN TEXT`",
        "compare": "`minitf runs compare RUN RUN`",
        "complete": '`minitf generate RUN "a prompt"`',
        "config": "`minitf recipe show RECIPE`",
        "download": "`minitf import hf:NAME`",
        "eval": "`minitf evaluate RUN`",
        "fine-tune": "`minitf finetune RECIPE`",
        "fit": "`minitf pretrain my.txt`",
        "help": "`minitf --help`, `minitf COMMAND --help`",
        "info": "`minitf doctor` for this machine, `minitf runs show RUN` for a run",
        "init": "`minitf recipe init my.yaml` writes a recipe; `minitf pretrain my.txt` needs none",
        "keys": "`minitf recipe keys`",
        "list": "`minitf runs list`, `minitf recipe list`",
        "ls": "`minitf runs list`",
        "models": "`minitf runs list`, `minitf recipe list`",
        "plan": "`minitf cost RECIPE` counts and measures; mini_tf/parallel/README.md has the arithmetic for many"
        " devices",
        "prepare": "`minitf pretrain my.txt` tokenizes the text itself; `minitf data show RECIPE` shows it",
        "resume": "the command that started the run continues it",
        "rm": "a run is a folder: rm -r outputs/NAME",
        "run": '`minitf pretrain` trains, `minitf generate RUN "a prompt"` continues a text',
        "sample": '`minitf generate RUN "a prompt"`',
        "serve": "there is no server; `minitf generate RUN -i prompts.txt` reads many prompts with one start",
        "show": "`minitf runs show RUN`, `minitf recipe show RECIPE`, `minitf data show RECIPE`",
        "summarize": "`minitf generate RUN -i texts.txt`",
        "sweep": "`minitf pretrain RECIPE train.seeds=3` trains several seeds; else a loop in the shell, then"
        " `minitf runs compare`",
        "test": "`minitf evaluate RUN --split val`, `minitf evaluate RUN --data FILE`",
        "tokenize": '`minitf tokenizer encode RUN "a text"`',
        "train": "`minitf pretrain my.txt` from scratch, `minitf finetune RECIPE` on a task",
        "translate": "`minitf generate RUN -i source.txt`",
        "version": "`minitf --version`",
        "visualize": '`minitf inspect-attention RUN "a text" -o heads.png`',
    },
    "minitf runs": {
        "delete": "a run is a folder: rm -r outputs/NAME",
        "ls": "`minitf runs list`",
        "rm": "a run is a folder: rm -r outputs/NAME",
    },
    "minitf recipe": {"keys-of": "`minitf recipe keys SECTION`", "new": "`minitf recipe init my.yaml`"},
    "minitf data": {
        "prepare": "`minitf pretrain my.txt` tokenizes the text itself; `minitf data show RECIPE` shows it"
    },
}
"""What to type in place of a command, by the group that lacks it."""

_WORD = re.compile("[A-Z]+")
_RUN_FIRST = "the run is the first argument: minitf {command} RUN"
_SAMPLES = "texts are sampled unless --greedy is given, or a run is an encoder or an encoder-decoder"
_CONTINUES = "the same command continues an unfinished run; --extend N trains a finished one further"
_RECIPE_FIRST = "a recipe is an argument: minitf {command} recipe.yaml"
_DATA = "a data file is an argument: minitf {command} my.txt; or data.train=FILE"
OPTIONS: dict[str, dict[str, str]] = {
    "generate": {
        "--beam-size": "--num-beams",
        "--beams": "--num-beams",
        "--checkpoint": _RUN_FIRST,
        "--do-sample": _SAMPLES,
        "--max-length": "--max-new-tokens N counts the new tokens alone",
        "--max-tokens": "--max-new-tokens N",
        "--n": "--num-samples N",
        "--num-return-sequences": "--num-samples N",
        "--prompt": 'the prompt is an argument: minitf generate RUN "a prompt"',
        "--start": 'the prompt is an argument: minitf generate RUN "a prompt"',
        "--text": 'the prompt is an argument: minitf generate RUN "a prompt"',
    },
    "training": {
        "--checkpoint": "model.init_from=RUN starts from the weights of a run",
        "--config": _RECIPE_FIRST,
        "--data": _DATA,
        "--dataset": _DATA,
        "--dataset-name": _DATA + ", data.train=hf:NAME",
        "--init-from": "model.init_from=RUN",
        "--model": "model.d_model=256 is a setting; model.init_from=RUN starts from a run",
        "--model-name-or-path": "model.init_from=RUN, or model.init_from=hf:NAME",
        "--output": "--out-dir DIR, or --name NAME in outputs/",
        "--recipe": _RECIPE_FIRST,
        "--resume": _CONTINUES,
        "--resume-from-checkpoint": _CONTINUES,
        "--text": _DATA,
        "--train-file": _DATA,
        "--validation-file": "data.val=FILE",
        "-c": _RECIPE_FIRST,
        "-o": "--out-dir DIR, or --name NAME in outputs/; weights are written to model.safetensors there",
    },
    "export": {"--out-dir": "-o DIR"},
    "RUN": {"--model": _RUN_FIRST, "--out-dir": _RUN_FIRST, "--run": _RUN_FIRST},
    "RECIPE": {"--config": _RECIPE_FIRST, "--recipe": _RECIPE_FIRST},
    "TEXT": {"--text": "a text is an argument"},
    "-i": {"--file": "-i FILE"},
    "--data": {"--file": "--data FILE", "--input": "--data FILE"},
    "--step": {"--checkpoint": "--step N chooses a checkpoint"},
}
"""What to type in place of an option, by command (`training` is pretrain and finetune), or by what the command has: an
argument or an option."""


def explain(error: Exception, arguments: list[str]) -> int:
    """Print an error of click in one line that ends with what to type; with --json an envelope. Returns exit code 2."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "minitf"
    message = str(getattr(error, "format_message", lambda: str(error))()).rstrip(".")
    if type(error).__name__ == "NoSuchOption":
        option = str(getattr(error, "option_name", ""))
        message = message.replace(option, _as_typed(option, arguments).partition("=")[0])
        hint = _for_option(option, path, context) or _as_key(error, arguments)
        message = message if hint is None else message.partition(" (Possible")[0]
    else:
        hint = _for_command(path, context, arguments)
        message = message if hint is None else message.partition(". Did you mean")[0]
    hint = hint or _as_text(error, arguments) or f"see `{path} --help`"
    return refuse(
        Console(command=path.partition(" ")[2], json="--json" in arguments), UsageFault(f"{path}: {message}", hint=hint)
    )


def _for_command(path: str, context: Any, arguments: list[str]) -> str | None:
    """A hint for a command that a group does not have."""
    if context is None or not hasattr(context.command, "commands"):
        return None
    words = [word for word in arguments if not word.startswith("-")]
    typed = words[len(path.split()) - 1 :]
    if not typed:
        return None
    if path == "minitf inspect" and (
        typed[0] == "last" or os.path.isdir(typed[0]) or os.path.isdir(f"outputs/{typed[0]}")
    ):
        return f"the view comes first: minitf inspect attention {shlex.join(typed)}"
    if path == "minitf" and (os.path.isfile(typed[0]) or "=" in typed[0]):
        return f"the command comes first: minitf pretrain {shlex.join(typed)}"
    return COMMANDS.get(path, {}).get(typed[0])


def _for_option(option: str, path: str, context: Any) -> str | None:
    """A hint for an option that a command does not have."""
    command = path.partition(" ")[2]
    has = {"training" if command in ("pretrain", "finetune") else command}
    for parameter in () if context is None else context.command.params:
        has |= {*parameter.opts} if parameter.param_type_name == "option" else {*_WORD.findall(parameter.metavar or "")}
    hints = (words.get(option.replace("_", "-")) for name, words in OPTIONS.items() if name in has)
    return next((hint.format(command=command) for hint in hints if hint is not None), None)


def _as_key(error: Exception, arguments: list[str]) -> str | None:
    """A hint with the recipe key for an unknown option; None if the command takes no KEY=VALUE or no key is similar."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    takes_settings = context is not None and any(
        "KEY=VALUE" in str(getattr(parameter, "metavar", "")) for parameter in context.command.params
    )
    if option is None or not takes_settings:
        return None
    from mini_tf.recipe.keys import suggest_key

    typed = _as_typed(option, arguments)
    _, equals, value = typed.partition("=")
    after = arguments[arguments.index(typed) + 1 :] if typed in arguments and not equals else []
    value = value or next((argument for argument in after[:1] if not argument.startswith("-")), "VALUE")
    key = suggest_key(option)
    return key and f"settings are written without dashes: {key}={value}"


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
