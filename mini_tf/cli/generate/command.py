"""`minitf generate` and `chat`: prompts in, printed text out, for arguments, lines of a file and the prompt loop."""

import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mini_tf.cli.generate.options import INPUT, OPTIONS, PROMPTS, given_options
from mini_tf.cli.generate.prompt_loop import prompt_loop
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.loading import at_terminal, note_words, open_model
from mini_tf.cli.terminal.options import AVERAGE, DEVICE, NPROC, RUN, STEP, parameter
from mini_tf.cli.terminal.processes import group_of, in_order, launched, refuse_stdin
from mini_tf.recipe.sections import Generate
from mini_tf.recipe.text_input import one_source, read_lines, refuse_non_utf8
from mini_tf.system.errors import DataFault, UsageFault, batches_of

if TYPE_CHECKING:
    from mini_tf.data.tokenization.prompts import InputWarnings
    from mini_tf.pipelines import Generator, Output
    from mini_tf.trained.opening import Trained


class PromptSession:
    """A trained model that generates; UsageFault if it does not. by_line: each prompt is a line of a file or pipe."""

    def __init__(self, console: Console, trained: "Trained", by_line: bool) -> None:
        self.console, self.trained, self.by_line = console, trained, by_line
        self._unread: InputWarnings | None = None
        self._printed: list[str] = []
        """Notes on the present prompts that were printed."""
        from mini_tf.pipelines._commands import generate_settings

        self.settings = generate_settings(trained)

    def open(self, options: Mapping[str, Any]) -> "Generator":
        """A generation with these options, by name; UsageFault for a value out of range or an option that the model
        does not support.
        """
        from mini_tf.pipelines._commands import open_generator

        console, terminal = self.console, sys.stdout.isatty() and not self.by_line and not self.console.json
        return open_generator(
            self.trained,
            options,
            by_line=self.by_line,
            terminal=terminal,
            json=console.json,
            on_unread=self._note,
            streamer=lambda piece: console.print_output(piece, end=""),
            warn=console.say,
        )

    def print_outputs(self, generation: "Generator", prompts: Sequence[str]) -> list[Any]:
        """Generate from prompts and print each result as soon as it is ready; returns the results, as of --json."""
        self._printed, results = [], []
        with nullcontext() if generation.streams else at_terminal("generating"):
            for output in generation.outputs(prompts):
                self.print_output(self._printed_of(output))
                results.append(output.result)
        self._print_notes()
        return results

    def outputs(self, generation: "Generator", prompts: Sequence[str], where: Sequence[str] = ()) -> Iterator[Any]:
        """What is printed for each prompt. where: file and line of each."""
        with nullcontext() if generation.streams else at_terminal("generating"):
            for output in generation.outputs(prompts, where):
                yield self._printed_of(output)

    def _printed_of(self, output: "Output") -> Any:
        """With --json the result, else the lines."""
        return output.result if self.console.json else [*(output.lines if self.by_line else output.shown)]

    def print_output(self, output: Any) -> None:
        """Print one of `outputs`."""
        if self.console.json:
            self.console.emit_json(run=self.trained.folder, result=output)
            return
        for line in output:
            self.console.print_output(line)

    @contextmanager
    def printing_notes(self) -> Iterator[None]:
        """Print at the end how much of the prompts was cut or unknown, over all batches."""
        try:
            yield
        finally:
            self._print_notes()

    def _note(self, unread: "InputWarnings") -> None:
        self._unread = unread
        if not self.by_line:
            self._print_notes()

    def _print_notes(self) -> None:
        for note in self._unread.notes() if self._unread is not None else ():
            if note not in self._printed:
                self.console.say(note)
                self._printed.append(note)


def default_lookahead(file: Path | None, for_file: int, for_pipe: int = 1) -> int:
    """Lines per batch: one for a pipe, since its writer may wait for each output."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if file is None else os.stat(file).st_mode
    except (OSError, ValueError):
        return for_pipe
    return for_file if stat.S_ISREG(mode) else for_pipe


def prompt_batches(file: Path | None, lookahead: int) -> Iterator[tuple[list[str], list[str]]]:
    """The lines of a file or of stdin, `lookahead` at a time, and the place of each, such as "stdin:3"."""
    name = "stdin" if file is None else str(file)
    first = 1
    for texts in batches_of(read_lines(file), lookahead):
        yield texts, [f"{name}:{first + i}" for i in range(len(texts))]
        first += len(texts)


@contextmanager
def faults_of_lines() -> Iterator[None]:
    """A prompt that is refused is an error of the data, not of the command line."""
    try:
        yield
    except UsageFault as fault:
        raise DataFault(fault.message, hint=fault.hint, where=fault.where) from fault


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
    options = given_options(values)
    by_line = input is not None or not (prompts or sys.stdin.isatty())
    session = PromptSession(console, open_model(run, step, device, average), by_line)
    if not prompts and not by_line:
        return prompt_loop(session, options)
    generation = session.open(options)
    if prompts:
        note_words(console, prompts)
        session.print_outputs(generation, prompts)
        return 0
    file = None if input == Path("-") else input
    batches = prompt_batches(file, default_lookahead(file, generation.chunk_size, options.get("batch_size", 1)))
    with session.printing_notes(), faults_of_lines(), group_of() as group:
        for output in in_order(group, batches, lambda batch: session.outputs(generation, *batch), generation.unread):
            session.print_output(output)
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
    options = given_options(values)
    return prompt_loop(PromptSession(console, open_model(run, step, device, average), by_line=False), options)
