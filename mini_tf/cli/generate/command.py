"""`minitf generate`: text out of a trained model: decoders continue prompts or answer, encoders fill [MASK]s, both together translate."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mini_tf.cli.generate.answering import Answering
from mini_tf.cli.generate.lines import ahead_by_default, answer_lines
from mini_tf.cli.generate.loop import prompt_loop
from mini_tf.cli.generate.stop_strings import stops
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.lines import one_source, refuse_broken
from mini_tf.cli.terminal.options import AVERAGE, DEVICE, RUN, STEP


@command
def generate(
    console: Console,
    run: RUN,
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="[PROMPT ...]", help="Texts to continue, fill, answer or translate; else of stdin.")
    ] = None,
    input: Annotated[Path | None, typer.Option("-i", "--input", metavar="FILE", help="Read prompts by line from a file.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option("--max-new-tokens", metavar="N", help="Most tokens to write.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", metavar="T", help="0: always the likeliest.")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", metavar="K", help="Draw from the K likeliest; encoder: name K (5).")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", metavar="P", help="Draw from the fewest that sum to P.")] = None,
    min_p: Annotated[float | None, typer.Option("--min-p", metavar="P", help="Draw from those with P of the likeliest's.")] = None,
    repetition_penalty: Annotated[float | None, typer.Option("--repetition-penalty", metavar="X", help="1: none.")] = None,
    num_samples: Annotated[int | None, typer.Option("--num-samples", metavar="N", min=1, max=10_000, help="Texts a prompt.")] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", metavar="TEXT", help="End before this; \\n, \\t and \\\\ are read.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, max=2**63 - 1, help="Decides the draws (0).")] = None,
    greedy: Annotated[bool | None, typer.Option("--greedy", help="As --temperature 0, or --num-beams 1.")] = None,
    num_beams: Annotated[int | None, typer.Option("--num-beams", metavar="N", help="Translating: texts followed side by side.")] = None,
    length_penalty: Annotated[float | None, typer.Option("--length-penalty", metavar="X", help="Translating: above 0, longer.")] = None,
    min_new_tokens: Annotated[int | None, typer.Option("--min-new-tokens", metavar="N", help="Translating: no shorter text.")] = None,
    no_repeat_ngram: Annotated[int | None, typer.Option("--no-repeat-ngram", metavar="N", help="Translating: no N tokens twice.")] = None,
    n_best: Annotated[int | None, typer.Option("--n-best", metavar="N", min=1, help="Translating: N lines: score, tab, text.")] = None,
    logprobs: Annotated[int | None, typer.Option("--logprobs", metavar="N", min=0, max=1000, help="Also of the N likeliest.")] = None,
    stream: Annotated[bool | None, typer.Option("--stream/--no-stream", help="Print text as it is written.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", metavar="N", min=1, max=4096, help="Texts at once.")] = None,
    longest: Annotated[int | None, typer.Option("--context", metavar="N", min=1, max=2**20, help="Tokens read at most.")] = None,
    step: STEP = None,
    average: AVERAGE = None,
    device: DEVICE = "auto",
) -> int:
    """Continue each prompt, fill its [MASK]s, translate it, or answer it; a conversation is JSON: {"messages": [...]}.

    A line of stdin or FILE gives an output line, in which \\n is a newline, \\\\ a backslash. At a terminal and without a prompt it
    asks for one; /help there shows how to change options, to retry and to enter several lines.
    """
    from mini_tf.trained.opening import open_trained

    refuse_broken(prompts or [], "a prompt")
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
    answering = Answering(console, open_trained(run, step, device, average), by_line)
    generation = answering.open(given)
    if not prompts and not by_line:
        return prompt_loop(answering, given)
    if prompts:
        answering.answer(generation, prompts)
        return 0
    file = None if input == Path("-") else input
    with answering.noting():
        answer_lines(partial(answering.answer, generation), file, ahead_by_default(file, generation.ahead, batch_size or 1))
    return 0
