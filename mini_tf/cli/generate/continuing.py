"""How `minitf generate` prints what a decoder writes: text as it comes, lines, or JSON."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mini_tf.cli.generate.lines import ROWS, one_line, option, quoted
from mini_tf.cli.generate.wishes import wish_of
from mini_tf.cli.terminal.console import Console
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.generation.writing import Prompt, Scored, Written
    from mini_tf.trained.opening import Trained

BETWEEN_SAMPLES = "---"


class Continue:
    """Answers prompts with their continuations. given: the command's options that were given, by name."""

    def __init__(self, console: Console, trained: "Trained", context: int, given: dict[str, Any], by_line: bool) -> None:
        from mini_tf.generation.writing import Writer

        self.console, self.trained, self.by_line = console, trained, by_line
        self.samples, self.rows = given.get("num_samples", 1), given.get("batch_size", ROWS)
        self.seed: int | None = given.get("seed", 0 if by_line else None)
        self._answered = 0
        self.n_top: int | None = given.get("logprobs")
        self.ahead = self.rows
        wish = wish_of(trained.recipe.generate, given | ({"temperature": 0.0} if given.get("greedy") else {}))
        recipe = trained.recipe.model_copy(update={"generate": wish})
        self.writer = Writer(trained.model, trained.tokenizer, recipe, context=context, n_top=self.n_top)
        self._refuse_nonsense(given)
        by_itself = sys.stdout.isatty() and not by_line and self.samples == 1 and not console.json
        self.streams = given.get("stream", by_itself)

    def __call__(self, prompts: Sequence[str], places: Sequence[str] = ()) -> None:
        """Print the continuations of each prompt; `places` are where the prompts stand, if not on the command line."""
        read = [self.framed(text) for text in prompts]
        for prompt, place in zip(read, places or [""] * len(read), strict=True):
            if prompt.cut:
                where = f"{place}: " if place else ""
                self.console.say(
                    f"{where}the prompt has {prompt.length} tokens; the first {prompt.cut} are cut off, the model reads the others"
                )
        rows, hear = (1, self._print_piece) if self.streams else (self.rows, None)
        # In a loop the same prompt is asked again to see another answer.
        seed, self._answered = self._answered if self.seed is None else self.seed, self._answered + 1
        answers = self.writer.write(read, seed, self.samples, rows, hear)
        for number, (prompt_text, texts) in enumerate(zip(prompts, answers, strict=True)):
            if self.console.json:
                self.console.emit_json(run=self.trained.folder, result=self._result(prompt_text, texts))
            else:
                self._print(texts, first=number == 0)

    def framed(self, text: str) -> "Prompt":
        """A prompt as the model reads it."""
        return self.writer.prompt(text)

    def _print(self, texts: Sequence["Written"], first: bool) -> None:
        for number, written in enumerate(texts):
            if self.samples > 1 and not self.by_line and not (first and number == 0):
                self.console.print_product(BETWEEN_SAMPLES)
            self.console.print_product("" if self.streams else self._shown(written.text))
            for token in written.tokens:
                self.console.print_product(self._line(token))

    def _print_piece(self, text: str) -> None:
        self.console.print_product(self._shown(text), end="")

    def _shown(self, text: str) -> str:
        return one_line(text) if self.by_line else text

    def _line(self, token: "Scored") -> str:
        """A token with its log-probability and what else was likely."""
        others = "".join(f"  {logprob:.4f} {self._quoted(id)}" for id, logprob in token.top)
        return f"{token.logprob:9.4f} {self._quoted(token.id):<16}{others}".rstrip()

    def _quoted(self, id: int) -> str:
        [piece] = self.trained.tokenizer.pieces([id])
        return quoted(piece)

    def _result(self, prompt: str, texts: Sequence["Written"]) -> dict[str, Any]:
        result: dict[str, Any] = {"prompt": prompt, "texts": [written.text for written in texts]}
        if self.n_top is not None:
            result["tokens"] = [[self._told(token) for token in written.tokens] for written in texts]
        return result

    def _told(self, token: "Scored") -> dict[str, Any]:
        pieces = self.trained.tokenizer.pieces([token.id, *(id for id, _ in token.top)])
        top = [{"token": piece, "logprob": logprob} for piece, (_, logprob) in zip(pieces[1:], token.top, strict=True)]
        return {"token": pieces[0], "id": token.id, "logprob": token.logprob, "top": top}

    def _refuse_nonsense(self, given: dict[str, Any]) -> None:
        drawing = [name for name in ("temperature", "top_k", "top_p", "min_p") if given.get(name)]
        if given.get("greedy") and drawing:
            raise UsageFault(f"--greedy is --temperature 0; {option(drawing[0])} {given[drawing[0]]:g} was given too")
        if self.samples > 1 and self.writer.sampling.greedy:
            raise UsageFault(f"--num-samples {self.samples}: the likeliest text is always the same", hint="give a --temperature above 0")
        if given.get("stream"):
            many = [option(name) for name in ("num_samples", "batch_size") if given.get(name, 1) > 1]
            if others := [*(["--json"] if self.console.json else []), *many]:
                raise UsageFault(f"--stream prints one text as it is written; {others[0]} was given too", hint="leave out one of them")
        if self.n_top is not None and self.by_line and not self.console.json:
            raise UsageFault("--logprobs do not fit on the one line that an input line gives", hint="--json gives them")
