"""What a model writes at the evaluation points of a run: samples of a decoder; translations, with their scores, of a model of pairs."""

from collections.abc import Callable
from functools import cached_property

from mini_tf import scores
from mini_tf.errors import DataFault, RunFault
from mini_tf.generation.translating import Translator
from mini_tf.generation.writing import Writer
from mini_tf.parts import Parts
from mini_tf.seeds import seed_of
from mini_tf.text.pairs import Pair
from mini_tf.translations import first_of, judge, pairs_of, translate

SHOWN = 8
"""Translations that a sample of a run holds."""


class Samples:
    """What the model of `parts` can be asked to write; an encoder writes nothing."""

    def __init__(self, parts: Parts, say: Callable[[str], None]) -> None:
        self.parts, self.say = parts, say

    def scores(self, whole: bool = False, each_chunk: Callable[[], None] = lambda: None) -> dict[str, float]:
        """bleu, chrf and exact_match of the first eval.translations held-out pairs, or of all; nothing where there are no pairs.

        each_chunk is called now and then; what it raises ends the work.
        """
        wanted = self.parts.recipe.eval.translations
        if self.parts.recipe.model.READS != "pairs" or not wanted or not self._can_score:
            return {}
        try:
            pairs = self._held_out(None) if whole else self._first[:wanted]
            return judge(translate(self._translator(), pairs, each_chunk), pairs)
        except RunFault as fault:
            self.say(f"no translations: {fault.message}")
            return {}

    def text(self) -> str | None:
        """What is kept of a point in training, for people; None where the model does not write.

        RunFault where its scores are no numbers, or nothing can be read.
        """
        recipe = self.parts.recipe
        if not recipe.log.samples or recipe.model.READS == "both":
            return None
        if recipe.model.READS == "pairs":
            pairs = self._first[:SHOWN]
            shown = zip(pairs, translate(self._translator(), pairs), strict=True)
            return "\n".join(f"source: {pair.source}\ntarget: {pair.target}\nmodel:  {text}\n" for pair, text in shown)
        writer = Writer(self.parts.model, self.parts.text.tokenizer, recipe, over_borders=True)
        [texts] = writer.write([writer.prompt(recipe.generate.prompt)], seed_of("sample"), recipe.log.samples)
        return "\n\n".join(recipe.generate.prompt + written.text for written in texts) + "\n"

    def _translator(self) -> Translator:
        text = self.parts.text
        return Translator(self.parts.model, text.tokenizer, text.source_tokenizer, self.parts.recipe.generate)

    def _held_out(self, n: int | None) -> list[Pair]:
        """As they were written. RunFault where the files were lost since the run began, for which no run need end."""
        try:
            return first_of(pairs_of(self.parts.recipe.data, None, "val"), n)
        except DataFault as fault:
            raise RunFault(fault.message) from fault

    @cached_property
    def _first(self) -> list[Pair]:
        """As many as a point on the way takes; all of them are read anew at the end, for they may be many."""
        return self._held_out(max(SHOWN, self.parts.recipe.eval.translations))

    @cached_property
    def _can_score(self) -> bool:
        if not scores.available():
            self.say("sacrebleu is not installed, so translations are not scored while training: pip install 'minitf[scores]'")
        return scores.available()
