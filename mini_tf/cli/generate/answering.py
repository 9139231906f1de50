"""From the options of `minitf generate` to printed answers, for prompts as arguments, as lines and in the loop alike."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mini_tf.cli.terminal.console import Console
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.data.tokenization.input_warnings import InputWarnings
    from mini_tf.pipelines import Generation
    from mini_tf.trained.opening import Trained


class Answering:
    """What a trained model does with prompts; UsageFault where it does nothing. by_line: each prompt is a line of a file."""

    def __init__(self, console: Console, trained: "Trained", by_line: bool) -> None:
        self.console, self.trained, self.by_line = console, trained, by_line
        self._unread: InputWarnings | None = None
        objective, name = trained.recipe.objective, trained.folder.name
        self.settings = objective.pipeline()
        if self.settings is None or self.settings.COMMAND != "generate":
            predicts = self.settings is not None and self.settings.COMMAND == "predict"
            hint = "minitf predict tells what it says of a text" if predicts else None
            raise UsageFault(f"{name} was trained to {objective.kind}, and writes no text", hint=hint)

    def open(self, given: Mapping[str, Any]) -> "Generation":
        """The generation with the options that were given, by name; UsageFault where one is unfit, or means nothing to the model."""
        from mini_tf.pipelines import GenerateOptions, pipeline_of

        for name in given:
            self.refuse_meaningless(name)
        options = {name: value for name, value in given.items() if name != "context"}
        console, terminal = self.console, sys.stdout.isatty() and not self.by_line and not self.console.json
        return pipeline_of(self.trained).generation(
            GenerateOptions(
                options,
                self._context(given.get("context")),
                self.by_line,
                terminal,
                console.json,
                self._note,
                lambda piece: console.print_product(piece, end=""),
            )
        )

    def answer(self, generation: "Generation", texts: Sequence[str], places: Sequence[str] = ()) -> None:
        """Print what is made of prompts, each as soon as it is there. places: file and line of each."""
        for one in generation.outputs(texts, places):
            if self.console.json:
                self.console.emit_json(run=self.trained.folder, result=one.result)
            else:
                for line in one.lines if self.by_line else one.shown:
                    self.console.print_product(line)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """At the end says what the model did not read of all the lines, however many groups they came in."""
        try:
            yield
        finally:
            self._say_notes()

    def refuse_meaningless(self, name: str) -> None:
        """UsageFault where an option means nothing to this model."""
        if name in self.settings.WITHOUT:
            why = self.settings.WITHOUT[name].format(run=self.trained.folder.name, model=self.trained.recipe.model.kind)
            raise UsageFault(f"--{name.replace('_', '-')}: {why}", hint="leave it out")

    def _note(self, unread: "InputWarnings") -> None:
        self._unread = unread
        if not self.by_line:
            self._say_notes()

    def _say_notes(self) -> None:
        for note in self._unread.notes() if self._unread is not None else ():
            self.console.say(note)

    def _context(self, wanted: int | None) -> int:
        """Tokens that the model reads of a text at most; positions that end can be read no farther."""
        context: int = self.trained.model.context
        if wanted is None:
            return context
        model = self.trained.recipe.model
        for limit in model.limits(context):
            if limit.source == model.SOURCE and wanted > limit.length:
                hint = "positions that run on, as rotary, alibi and sinusoidal do, would read farther"
                raise UsageFault(f"--context {wanted}: the model's {limit.kind} positions end at {limit.length}", hint=hint)
        return wanted
