"""The options of `minitf generate`. Defaults that --help shows are those of a recipe's `generate` section."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mini_tf.cli.terminal.options import INPUT_OUTPUT

_io, _sampling, _beams = (
    partial(typer.Option, rich_help_panel=name) for name in (INPUT_OUTPUT, "Sampling", "Beam search (encoder-decoder)")
)


def _fits(seed: int | None) -> int | None:
    if seed is not None and not 0 <= seed < 2**63:
        raise typer.BadParameter(f"{seed} is not in the range 0 to 2^63 - 1")
    return seed


PROMPTS = Annotated[
    list[str] | None, typer.Argument(metavar="[PROMPT ...]", help="Prompts; without any, lines of stdin.")
]
INPUT = Annotated[Path | None, _io("-i", "--input", metavar="FILE", help="Read prompts from the lines of a file.")]
LOGPROBS = Annotated[
    int | None,
    _io(
        "--logprobs",
        metavar="N",
        min=0,
        max=1000,
        help="Print the log-probability of each token and of the N most probable ones.",
    ),
]
STREAM = Annotated[
    bool | None, _io("--stream/--no-stream", help="Print text while it is generated.", show_default="at a terminal")
]
BATCH_SIZE = Annotated[
    int | None, _io("--batch-size", metavar="N", min=1, max=4096, help="Prompts per forward pass.", show_default="auto")
]
CONTEXT = Annotated[
    int | None,
    _io("--context", metavar="N", min=1, max=2**20, help="Maximum context in tokens.", show_default="as trained"),
]

MAX_NEW_TOKENS = Annotated[
    int | None, _sampling("--max-new-tokens", metavar="N", help="Maximum number of new tokens.", show_default="200")
]
TEMPERATURE = Annotated[
    float | None, _sampling("--temperature", metavar="T", help="Sampling temperature; 0: greedy.", show_default="0.8")
]
TOP_K = Annotated[
    int | None,
    _sampling(
        "--top-k", metavar="K", help="Sample from the K most probable tokens; encoder: list K (5).", show_default="50"
    ),
]
TOP_P = Annotated[
    float | None, _sampling("--top-p", metavar="P", help="Nucleus sampling, 0 to 1; 1: off.", show_default="1")
]
MIN_P = Annotated[
    float | None,
    _sampling(
        "--min-p",
        metavar="P",
        help="Minimum probability relative to the most probable token, 0 to 1.",
        show_default="0",
    ),
]
REPETITION_PENALTY = Annotated[
    float | None, _sampling("--repetition-penalty", metavar="X", help="Above 1: fewer repetitions.", show_default="1")
]
NUM_SAMPLES = Annotated[
    int | None, _sampling("--num-samples", metavar="N", min=1, max=10_000, help="Samples per prompt.", show_default="1")
]
STOP = Annotated[
    list[str] | None,
    _sampling("--stop", metavar="TEXT", help="Stop before this string; \\n is a newline, \\t a tab. Repeatable."),
]
SEED = Annotated[
    int | None,
    _sampling(
        "--seed", metavar="N", callback=_fits, help="Random seed; a prompt loop draws a new one.", show_default="0"
    ),
]
GREEDY = Annotated[bool | None, _sampling("--greedy", help="Greedy decoding: temperature 0, or one beam.")]

NUM_BEAMS = Annotated[int | None, _beams("--num-beams", metavar="N", help="Beam size; 1: greedy.", show_default="4")]
LENGTH_PENALTY = Annotated[
    float | None,
    _beams("--length-penalty", metavar="X", help="Divide log-probability by ((5 + length) / 6)^X.", show_default="0.6"),
]
MIN_NEW_TOKENS = Annotated[
    int | None, _beams("--min-new-tokens", metavar="N", help="Minimum number of new tokens.", show_default="0")
]
NO_REPEAT_NGRAM = Annotated[
    int | None,
    _beams("--no-repeat-ngram", metavar="N", help="No n-gram of this size occurs twice; 0: off.", show_default="0"),
]
N_BEST = Annotated[
    int | None, _beams("--n-best", metavar="N", min=1, help="Print the N best hypotheses: score, tab, text.")
]
