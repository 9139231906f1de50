"""What a model writes at the evaluation points of a run: samples of a decoder; translations, with their scores, of a model of pairs."""

from collections.abc import Callable
from functools import cached_property
from itertools import islice

from mini_tf import scores
from mini_tf.errors import RunFault
from mini_tf.generation.translating import Translator
from mini_tf.generation.writing import Writer
from mini_tf.parts import Parts
from mini_tf.seeds import seed_of
from mini_tf.text.pair_store import PairText
from mini_tf.translations import judge, translate

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
        if not isinstance(self.parts.text, PairText) or not wanted or not self._can_score:
            return {}
        pairs = self.parts.text.val.pairs()
        try:
            translated = list(translate(self._translator(), pairs if whole else islice(pairs, wanted), each_chunk))
        except RunFault as fault:
            self.say(f"no translations: {fault.message}")
            return {}
        return judge(translated)

    def text(self) -> str | None:
        """What is kept of a point in training, for people; None where the model does not write.

        RunFault where its scores are no numbers.
        """
        recipe, text = self.parts.recipe, self.parts.text
        if not recipe.log.samples or recipe.model.READS == "both":
            return None
        if isinstance(text, PairText):
            pairs = list(islice(text.val.pairs(), SHOWN))
            shown = zip(pairs, translate(self._translator(), pairs), strict=True)
            return "\n".join(f"source: {pair.source}\ntarget: {pair.target}\nmodel:  {found}\n" for pair, (found, _) in shown)
        writer = Writer(self.parts.model, self.parts.text.tokenizer, recipe, over_borders=True)
        [texts] = writer.write([writer.prompt(recipe.generate.prompt)], seed_of("sample"), recipe.log.samples)
        return "\n\n".join(recipe.generate.prompt + written.text for written in texts) + "\n"

    def _translator(self) -> Translator:
        text = self.parts.text
        return Translator(self.parts.model, text.tokenizer, text.source_tokenizer, self.parts.recipe.generate)

    @cached_property
    def _can_score(self) -> bool:
        if not scores.available("sacrebleu"):
            self.say("sacrebleu is not installed, so translations are not scored while training: pip install 'minitf[scores]'")
        return scores.available("sacrebleu")
