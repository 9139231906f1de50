"""`minitf generate`: text from a trained model."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mini_tf.cli.generate import options
from mini_tf.cli.generate.prompt_lines import default_lookahead, faults_of_lines, prompt_batches
from mini_tf.cli.generate.prompt_loop import prompt_loop
from mini_tf.cli.generate.prompting import PromptSession
from mini_tf.cli.generate.stop_strings import stops
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.options import AVERAGE, DEVICE, NPROC, RUN, STEP
from mini_tf.cli.terminal.processes import group_of, in_order, launched, refuse_stdin
from mini_tf.recipe.text_input import one_source, refuse_non_utf8

if TYPE_CHECKING:
    from mini_tf.pipelines import Generator


@command
def generate(
    console: Console,
    run: RUN,
    prompts: options.PROMPTS = None,
    input: options.INPUT = None,
    max_new_tokens: options.MAX_NEW_TOKENS = None,
    temperature: options.TEMPERATURE = None,
    top_k: options.TOP_K = None,
    top_p: options.TOP_P = None,
    min_p: options.MIN_P = None,
    repetition_penalty: options.REPETITION_PENALTY = None,
    num_samples: options.NUM_SAMPLES = None,
    stop: options.STOP = None,
    seed: options.SEED = None,
    greedy: options.GREEDY = None,
    num_beams: options.NUM_BEAMS = None,
    length_penalty: options.LENGTH_PENALTY = None,
    min_new_tokens: options.MIN_NEW_TOKENS = None,
    no_repeat_ngram: options.NO_REPEAT_NGRAM = None,
    n_best: options.N_BEST = None,
    logprobs: options.LOGPROBS = None,
    stream: options.STREAM = None,
    batch_size: options.BATCH_SIZE = None,
    context: options.CONTEXT = None,
    step: STEP = None,
    average: AVERAGE = None,
    device: DEVICE = "auto",
    nproc: NPROC = 1,
) -> int:
    """Continue prompts (decoder), fill [MASK] (encoder), translate (encoder-decoder) or answer a chat.

    Each line of stdin or FILE gives one output line, in which \\n is a newline and \\\\ a backslash. Chat messages are
    JSON: {"messages": [{"role": "user", "content": "..."}]}. Without prompts, a terminal opens a prompt loop; /help
    lists its commands.
    """
    refuse_stdin(nproc, not prompts and input in (None, Path("-")))
    if (exit_code := launched(console, nproc)) is not None:
        return exit_code
    from mini_tf.trained.opening import open_trained

    refuse_non_utf8(prompts or [], "a prompt")
    one_source(prompts, input, "prompts")
    chosen = {
        "max_new_tokens": max_new_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
        "repetition_penalty": repetition_penalty, "num_samples": num_samples, "stop": stops(stop) if stop else None,
        "seed": seed,
        "greedy": greedy, "num_beams": num_beams, "length_penalty": length_penalty, "min_new_tokens": min_new_tokens,
        "no_repeat_ngram": no_repeat_ngram, "n_best": n_best, "logprobs": logprobs, "stream": stream,
        "batch_size": batch_size,
        "context": context,
    }  # fmt: skip
    given = {name: value for name, value in chosen.items() if value is not None}
    by_line = input is not None or not (prompts or sys.stdin.isatty())
    session = PromptSession(console, open_trained(run, step, device, average), by_line)
    generation = session.open(given)
    if not prompts and not by_line:
        return prompt_loop(session, given)
    if prompts:
        session.print_outputs(generation, prompts)
        return 0
    file = None if input == Path("-") else input
    _generate_by_lines(
        session, generation, prompt_batches(file, default_lookahead(file, generation.chunk_size, batch_size or 1))
    )
    return 0


def _generate_by_lines(
    session: PromptSession, generation: "Generator", batches: Iterator[tuple[list[str], list[str]]]
) -> None:
    """A prompt that is refused ends the command; the lines before its batch are answered."""
    with session.printing_notes(), faults_of_lines(), group_of() as group:
        for output in in_order(group, batches, lambda batch: session.outputs(generation, *batch), generation.unread):
            session.print_output(output)
