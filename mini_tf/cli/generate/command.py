"""`minitf generate`: text from a trained model."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mini_tf.cli.generate.options import INPUT, OPTIONS, PROMPTS, given_options
from mini_tf.cli.generate.prompt_loop import prompt_loop
from mini_tf.cli.generate.prompting import PromptSession, default_lookahead, faults_of_lines, prompt_batches
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.loading import open_model
from mini_tf.cli.terminal.options import AVERAGE, DEVICE, NPROC, RUN, STEP, parameter
from mini_tf.cli.terminal.processes import group_of, in_order, launched, refuse_stdin
from mini_tf.recipe.sections import Generate
from mini_tf.recipe.text_input import one_source, refuse_non_utf8

if TYPE_CHECKING:
    from mini_tf.pipelines import Generator


_with_options = partial(command, options=[parameter(name, option) for name, option in OPTIONS.items()])


@_with_options
def generate(
    console: Console,
    run: RUN,
    prompts: PROMPTS = None,
    input: INPUT = None,
    *,
    step: STEP = None,
    average: AVERAGE = None,
    device: DEVICE = "auto",
    nproc: NPROC = 1,
    **values: Any,
) -> int:
    refuse_stdin(nproc, not prompts and input in (None, Path("-")))
    if (exit_code := launched(console, nproc)) is not None:
        return exit_code
    refuse_non_utf8(prompts or [], "a prompt")
    one_source(prompts, input, "prompts", Generate.model_fields)
    given = given_options(values)
    by_line = input is not None or not (prompts or sys.stdin.isatty())
    session = PromptSession(console, open_model(run, step, device, average), by_line)
    if not prompts and not by_line:
        return prompt_loop(session, given)
    generation = session.open(given)
    if prompts:
        session.print_outputs(generation, prompts)
        return 0
    file = None if input == Path("-") else input
    _generate_by_lines(
        session,
        generation,
        prompt_batches(file, default_lookahead(file, generation.chunk_size, given.get("batch_size", 1))),
    )
    return 0


@_with_options
def chat(
    console: Console,
    run: RUN,
    *,
    step: STEP = None,
    average: AVERAGE = None,
    device: DEVICE = "auto",
    **values: Any,
) -> int:
    given = given_options(values)
    return prompt_loop(PromptSession(console, open_model(run, step, device, average), by_line=False), given)


def _generate_by_lines(
    session: PromptSession, generation: "Generator", batches: Iterator[tuple[list[str], list[str]]]
) -> None:
    """A prompt that is refused ends the command; the lines before its batch are answered."""
    with session.printing_notes(), faults_of_lines(), group_of() as group:
        for output in in_order(group, batches, lambda batch: session.outputs(generation, *batch), generation.unread):
            session.print_output(output)
