"""The options of `minitf generate`. Those of a recipe's section `generate` have its types and defaults.

Their ranges are the section's as well: it refuses a value with the same message in a recipe and on the command line.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from mini_tf.cli.terminal.options import INPUT_OUTPUT, io_option
from mini_tf.recipe.kind_settings.pipelines import OPTION_RANGES
from mini_tf.recipe.sections import Generate
from mini_tf.recipe.text_input import refuse_non_utf8
from mini_tf.system.errors import UsageFault

MAX_STOPS = 64
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


def _fits(seed: int | None) -> int | None:
    if seed is not None and not 0 <= seed < 2**63:
        raise typer.BadParameter(f"{seed} is not in the range 0 to 2^63 - 1")
    return seed


def _option(panel: str, of: Any, flags: str, metavar: str | None, help: str, **more: Any) -> tuple[str, Any]:
    """Name and annotation. of: the type, or Generate for that of its field of this name."""
    name = flags.partition("/")[0].removeprefix("--").replace("-", "_")
    if of is Generate:
        default = Generate.model_fields[name].default
        of, more = type(default), {"show_default": f"{default:g}"}
    if name in OPTION_RANGES and "callback" not in more:
        more["min"], more["max"] = OPTION_RANGES[name]
    return name, Annotated[of | None, typer.Option(flags, metavar=metavar, help=help, rich_help_panel=panel, **more)]


PROMPTS = Annotated[
    list[str] | None, typer.Argument(metavar="[PROMPT ...]", help="Prompts; without any, lines of stdin.")
]
INPUT = Annotated[
    Path | None, io_option("-i", "--input", metavar="FILE", help="Read prompts from the lines of a file.")
]
_sampling, _beams = partial(_option, "Sampling"), partial(_option, "Beam search (encoder-decoder)")
_io = partial(_option, INPUT_OUTPUT)
OPTIONS: dict[str, Any] = dict(
    [
        _sampling(Generate, "--max-new-tokens", "N", "Maximum number of new tokens."),
        _sampling(Generate, "--temperature", "T", "Sampling temperature; 0: greedy."),
        _sampling(
            Generate, "--top-k", "K", "Sample from the K most probable tokens, 0: from all; encoder: list K (5)."
        ),
        _sampling(Generate, "--top-p", "P", "Nucleus sampling, 0 to 1; 1: off."),
        _sampling(Generate, "--min-p", "P", "Minimum probability relative to the most probable token, 0 to 1."),
        _sampling(Generate, "--repetition-penalty", "X", "Above 1: fewer repetitions."),
        _sampling(int, "--num-samples", "N", "Samples per prompt.", show_default="1"),
        _sampling(list[str], "--stop", "TEXT", "Stop before this string; \\n is a newline, \\t a tab. Repeatable."),
        _sampling(int, "--seed", "N", "Random seed; a prompt loop draws a new one.", callback=_fits, show_default="0"),
        _sampling(bool, "--greedy", None, "Greedy decoding: temperature 0, or one beam."),
        _beams(Generate, "--num-beams", "N", "Beam size; 1: greedy."),
        _beams(Generate, "--length-penalty", "X", "Divide log-probability by ((5 + length) / 6)^X."),
        _beams(Generate, "--min-new-tokens", "N", "Minimum number of new tokens."),
        _beams(Generate, "--no-repeat-ngram", "N", "No n-gram of this size occurs twice; 0: off."),
        _beams(int, "--n-best", "N", "Print the N best hypotheses: score, tab, text."),
        _io(
            int,
            "--logprobs",
            "N",
            "Print the log-probability of each token and of the N most probable ones.",
        ),
        _io(bool, "--stream/--no-stream", None, "Print text while it is generated.", show_default="at a terminal"),
        _io(int, "--batch-size", "N", "Prompts per forward pass.", show_default="auto"),
        _io(int, "--context", "N", "Maximum context in tokens.", show_default="as trained"),
    ]
)
"""In the order of --help and of /set, by the names that `open_generator` takes."""


def given_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were set, by name; UsageFault for a value that the recipe's section `generate` refuses."""
    options = {name: values[name] for name in OPTIONS if values[name] not in (None, [])}
    if "stop" in options:
        options["stop"] = stops(options["stop"])
    Generate().with_options(options)
    return options


def stops(texts: Sequence[str]) -> tuple[str, ...]:
    """The stop strings of all --stop options; UsageFault if there are too many or one is invalid."""
    if len(texts) > MAX_STOPS:
        raise UsageFault(f"--stop: {len(texts)} strings given, at most {MAX_STOPS} allowed")
    return tuple(map(unescaped, texts))


def unescaped(text: str) -> str:
    """A stop string with escapes replaced; UsageFault if it is empty, not UTF-8 or has an unknown escape."""
    refuse_non_utf8([text], "a stop string")
    if not text:
        raise UsageFault("--stop is empty")

    def read(escape: re.Match[str]) -> str:
        if escape[1] not in _ESCAPES:
            raise UsageFault(
                f"--stop {text}: unknown escape {escape[0]}", hint="\\n is a newline, \\t a tab, \\\\ a backslash"
            )
        return _ESCAPES[escape[1]]

    return re.sub(r"\\(.?)", read, text, flags=re.DOTALL)
