"""How `minitf generate` prints what an encoder puts in place of [MASK]: ranked candidates, filled lines, or JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mini_tf.cli.generate.lines import ROWS, one_line, quoted
from mini_tf.cli.generate.wishes import refuse_unfit
from mini_tf.cli.terminal.console import Console
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.generation.filling import Candidate, Question
    from mini_tf.trained.opening import Trained

CANDIDATES = 5
FITTING = {"top_k", "batch_size"}
"""Options that mean something to an encoder."""


class Fill:
    """Answers prompts with candidates for their masks. given: the command's options that were given, by name."""

    def __init__(self, console: Console, trained: "Trained", context: int, given: dict[str, Any], by_line: bool) -> None:
        from mini_tf.generation.filling import Filler

        refuse_unfit(
            (name for name in given if name not in FITTING),
            f"{trained.folder.name} is an encoder, which fills [MASK] and continues no text",
        )
        self.console, self.trained, self.by_line = console, trained, by_line
        self.n, self.rows = given.get("top_k", CANDIDATES), given.get("batch_size", ROWS)
        self.ahead = self.rows
        if self.n < 1:
            raise UsageFault(f"--top-k: must be at least 1, got {self.n}")
        self.filler = Filler(trained.model, trained.tokenizer, not trained.recipe.data.split.tail, context)

    def __call__(self, prompts: Sequence[str], places: Sequence[str] = ()) -> None:
        """Print the candidates of each prompt, or as a line the prompt filled with the likeliest.

        places: where the prompts stand, if not on the command line. UsageFault at a prompt that cannot be filled; those before
        it are answered if they are lines.
        """
        questions: list[Question] = []
        fault = None
        for number, prompt in enumerate(prompts):
            try:
                questions.append(self.filler.question(prompt))
            except UsageFault as error:
                fault = error if not places else UsageFault(error.message, hint=error.hint, where=[places[number]])
                break
        if fault is None or places:
            for first in range(0, len(questions), self.rows):
                self._answer(prompts[first:], questions[first : first + self.rows], headed=len(prompts) > 1)
        if fault is not None:
            raise fault

    def _answer(self, prompts: Sequence[str], questions: Sequence["Question"], headed: bool) -> None:
        for prompt, question, masks in zip(prompts, questions, self.filler.candidates(questions, self.n), strict=False):
            if self.console.json:
                told = [[{"token": candidate.token, "p": candidate.p} for candidate in ranked] for ranked in masks]
                self.console.emit_json(run=self.trained.folder, result={"prompt": prompt, "candidates": told})
            elif self.by_line:
                self.console.print_product(one_line(self.filler.filled(question, masks)))
            else:
                self.console.print_product("\n".join([*([one_line(prompt)] if headed else []), *_table(masks)]))


def _table(masks: Sequence[Sequence["Candidate"]]) -> list[str]:
    """A line for each candidate, and one before those of each mask where there are several."""
    lines = []
    for number, ranked in enumerate(masks, 1):
        lines += [f"[MASK] {number} of {len(masks)}"] if len(masks) > 1 else []
        for candidate in ranked:
            lines.append(f"{candidate.p:.4f} {quoted(candidate.token)}")
    return lines
