"""`minitf generate`: text out of a trained model: decoders continue prompts or answer, encoders fill [MASK]s, both together translate."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mini_tf.cli.generate.prompt_lines import default_lookahead, generate_from_lines
from mini_tf.cli.generate.prompt_loop import prompt_loop
from mini_tf.cli.generate.prompting import PromptSession
from mini_tf.cli.generate.stop_strings import stops
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import AVERAGE, DEVICE, RUN, STEP
from mini_tf.cli.terminal.text_input import one_source, refuse_non_utf8

_io, _sampling, _beams = (partial(typer.Option, rich_help_panel=name) for name in ("Input and output", "Sampling", "Beam search"))


@command
def generate(
    console: Console,
    run: RUN,
    prompts: Annotated[list[str] | None, typer.Argument(metavar="[PROMPT ...]", help="Prompts; default: stdin.")] = None,
    input: Annotated[Path | None, _io("-i", "--input", metavar="FILE", help="Read prompts from a file, one per line.")] = None,
    max_new_tokens: Annotated[int | None, _sampling("--max-new-tokens", metavar="N", help="Maximum number of new tokens.")] = None,
    temperature: Annotated[float | None, _sampling("--temperature", metavar="T", help="Sampling temperature; 0: greedy decoding.")] = None,
    top_k: Annotated[
        int | None, _sampling("--top-k", metavar="K", help="Sample from the K most probable tokens; encoder: candidates per mask (5).")
    ] = None,
    top_p: Annotated[
        float | None, _sampling("--top-p", metavar="P", help="Nucleus sampling: the most probable tokens of total probability P.")
    ] = None,
    min_p: Annotated[
        float | None, _sampling("--min-p", metavar="P", help="Tokens with at least P times the probability of the most probable one.")
    ] = None,
    repetition_penalty: Annotated[
        float | None, _sampling("--repetition-penalty", metavar="X", help="Penalty on tokens that have occurred; 1: none.")
    ] = None,
    num_samples: Annotated[
        int | None, _sampling("--num-samples", metavar="N", min=1, max=10_000, help="Number of samples per prompt.")
    ] = None,
    stop: Annotated[
        list[str] | None, _sampling("--stop", metavar="TEXT", help="Stop before this text; \\n, \\t and \\\\ are read.")
    ] = None,
    seed: Annotated[int | None, _sampling("--seed", min=0, max=2**63 - 1, help="Random seed (0).")] = None,
    greedy: Annotated[bool | None, _sampling("--greedy", help="Greedy decoding: temperature 0, or one beam.")] = None,
    num_beams: Annotated[int | None, _beams("--num-beams", metavar="N", help="Beam size; 1: greedy decoding.")] = None,
    length_penalty: Annotated[float | None, _beams("--length-penalty", metavar="X", help="Above 0: longer texts are preferred.")] = None,
    min_new_tokens: Annotated[int | None, _beams("--min-new-tokens", metavar="N", help="Minimum number of new tokens.")] = None,
    no_repeat_ngram: Annotated[int | None, _beams("--no-repeat-ngram", metavar="N", help="No n-gram of this size occurs twice.")] = None,
    n_best: Annotated[int | None, _beams("--n-best", metavar="N", min=1, help="The N best hypotheses: score, tab, text.")] = None,
    logprobs: Annotated[
        int | None, _io("--logprobs", metavar="N", min=0, max=1000, help="Log-probability of each token and of its N most probable rivals.")
    ] = None,
    stream: Annotated[bool | None, _io("--stream/--no-stream", help="Print text while it is generated.")] = None,
    batch_size: Annotated[int | None, _io("--batch-size", metavar="N", min=1, max=4096, help="Prompts per forward pass.")] = None,
    longest: Annotated[int | None, _io("--context", metavar="N", min=1, max=2**20, help="Maximum prompt length in tokens.")] = None,
    step: STEP = None,
    average: AVERAGE = None,
    device: DEVICE = "auto",
) -> int:
    """Continue each prompt, fill its [MASK]s, translate it, or answer it; a conversation is JSON: {"messages": [...]}.

    A line of stdin or FILE gives an output line, in which \\n is a newline, \\\\ a backslash. At a terminal and without a prompt it
    asks for one; /help there shows how to change options, to retry and to enter several lines.
    """
    from mini_tf.trained.opening import open_trained

    refuse_non_utf8(prompts or [], "a prompt")
    one_source(prompts, input, "prompts")
    options = {
        "max_new_tokens": max_new_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
        "repetition_penalty": repetition_penalty, "num_samples": num_samples, "stop": stops(stop) if stop else None, "seed": seed,
        "greedy": greedy, "num_beams": num_beams, "length_penalty": length_penalty, "min_new_tokens": min_new_tokens,
        "no_repeat_ngram": no_repeat_ngram, "n_best": n_best, "logprobs": logprobs, "stream": stream, "batch_size": batch_size,
        "context": longest,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None}
    by_line = input is not None or not (prompts or sys.stdin.isatty())
    session = PromptSession(console, open_trained(run, step, device, average), by_line)
    generation = session.open(given)
    if not prompts and not by_line:
        return prompt_loop(session, given)
    if prompts:
        session.answer(generation, prompts)
        return 0
    file = None if input == Path("-") else input
    with session.printing_notes():
        generate_from_lines(partial(session.answer, generation), file, default_lookahead(file, generation.ahead, batch_size or 1))
    return 0
