"""How `minitf generate` prints what an encoder-decoder makes of a source: its translation, the n best with their scores, or JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mini_tf.cli.generate.lines import one_line
from mini_tf.cli.generate.wishes import BEAMS, refuse_unfit, wish_of
from mini_tf.cli.terminal.console import Console
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.generation.translating import Translation
    from mini_tf.recipe.sections import Generate
    from mini_tf.trained.opening import Trained

FITTING = {*BEAMS, "max_new_tokens", "greedy", "batch_size"}
"""Options that mean something to an encoder-decoder."""


class Translate:
    """Answers sources with their translations. given: the command's options that were given, by name."""

    def __init__(self, console: Console, trained: "Trained", context: int, given: dict[str, Any], by_line: bool) -> None:
        from mini_tf.generation.translating import CHUNK, ROWS
        from mini_tf.pipelines.translations import translator_of

        refuse_unfit(
            (name for name in given if name not in FITTING),
            f"{trained.folder.name} is an encoder-decoder, which follows several texts side by side and draws none",
        )
        self.console, self.trained, self.by_line = console, trained, by_line
        self.rows, self.n_best = given.get("batch_size", ROWS), given.get("n_best")
        self.ahead = CHUNK * self.rows
        wish = wish_of(trained.recipe.generate, given | ({"num_beams": 1} if given.get("greedy") else {}))
        self._refuse_nonsense(given, wish)
        self.translator = translator_of(trained, wish, context)

    def __call__(self, prompts: Sequence[str], places: Sequence[str] = ()) -> None:
        """Print the translations of each prompt; `places` are where the prompts stand, if not on the command line."""
        for source, place in zip(self.translator.sources(prompts), places or [""] * len(prompts), strict=True):
            if source.cut:
                where = f"{place}: " if place else ""
                self.console.say(
                    f"{where}the source has {source.length} tokens; the last {source.cut} are cut off, the model reads the others"
                )
        answers = self.translator.translate(prompts, self.rows, self.n_best or 1)
        for prompt, translations in zip(prompts, answers, strict=True):
            if self.console.json:
                self.console.emit_json(run=self.trained.folder, result=_result(prompt, translations))
            else:
                for translation in translations:
                    self.console.print_product(self._shown(translation))

    def _shown(self, translation: "Translation") -> str:
        if self.n_best is not None:
            return f"{translation.score:.4f}\t{one_line(translation.text)}"
        return one_line(translation.text) if self.by_line else translation.text

    def _refuse_nonsense(self, given: dict[str, Any], wish: "Generate") -> None:
        if given.get("greedy") and given.get("num_beams", 1) != 1:
            raise UsageFault(f"--greedy is --num-beams 1; --num-beams {given['num_beams']} was given too")
        if (self.n_best or 1) > wish.num_beams:
            raise UsageFault(f"--n-best {self.n_best}: there are no more texts than beams, {wish.num_beams}", hint="give more --num-beams")
        if wish.min_new_tokens > wish.max_new_tokens:
            raise UsageFault(f"--min-new-tokens {wish.min_new_tokens} is more than --max-new-tokens {wish.max_new_tokens}")


def _result(prompt: str, translations: Sequence["Translation"]) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "texts": [translation.text for translation in translations],
        "scores": [translation.score for translation in translations],
        "logprobs": [translation.logprob for translation in translations],
    }
