"""What a model writes at the evaluation points of a run: samples of a decoder; translations or answers, with their scores."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice

from mini_tf.generation.translating import Translator
from mini_tf.generation.writing import Writer
from mini_tf.jobs.diagnosis import copying
from mini_tf.jobs.parts import Parts
from mini_tf.pipelines.responses import asked, respond, responder
from mini_tf.pipelines.translations import judge, translate
from mini_tf.recipe.recipe import Recipe
from mini_tf.scores import OF_TEXTS, available, left_out, packages_of
from mini_tf.system.errors import RunFault
from mini_tf.system.seeds import seed_of

SHOWN = 8
"""Translations or answers that a sample of a run holds."""


def answers(recipe: Recipe) -> bool:
    """Whether a model of this recipe writes translations or answers, which can be compared with references."""
    return recipe.objective.REFERENCES


def continues(recipe: Recipe) -> bool:
    """Whether a model of this recipe continues texts."""
    return recipe.objective.PREDICTS_TOKENS and recipe.objective.DATASET == "text" and recipe.model.causal


class Samples:
    """What the model of `parts` can be asked to write; one that fills in, classifies, tags or tells numbers writes nothing."""

    def __init__(self, parts: Parts, say: Callable[[str], None]) -> None:
        self.parts, self.say = parts, say

    def scores(self, whole: bool = False, each_chunk: Callable[[], None] = lambda: None) -> dict[str, float]:
        """ROUGE, bleu, chrf and exact_match of the first eval.translations held-out pairs or conversations, or of all of them.

        Nothing where there are neither. each_chunk is called now and then; what it raises ends the work.
        """
        wanted = self.parts.recipe.eval.translations
        if not answers(self.parts.recipe) or not wanted or not self._can_score:
            return {}
        try:
            return judge(self._written(None if whole else wanted, each_chunk))
        except RunFault as fault:
            self.say(f"nothing written to be scored: {fault.message}")
            return {}

    def text(self) -> str | None:
        """What is kept of a point in training, for people; None where the model does not write.

        RunFault where its scores are no numbers.
        """
        if not self.parts.recipe.log.samples:
            return None
        if answers(self.parts.recipe):
            written = self._written(SHOWN, lambda: None)
            return "\n".join(f"{question}{found}\n" for question, (found, _) in zip(self._questions(), written, strict=True))
        return self._continued() if continues(self.parts.recipe) else None

    def copied(self, sample: str) -> str | None:
        """How much of a sample stands in the training text, for people; None where samples are no continued texts."""
        if not sample or not continues(self.parts.recipe):
            return None
        return copying(sample, self.parts.text.train, self.parts.text.tokenizer)

    def _written(self, most: int | None, each_chunk: Callable[[], None]) -> Iterator[tuple[str, Sequence[str]]]:
        """What the model makes of the first held-out pairs or conversations, None = all, and the references beside it."""
        text, recipe, model = self.parts.text, self.parts.recipe, self.parts.model
        if recipe.objective.SOURCE:
            translator = Translator(model, text.tokenizer, text.source_tokenizer, recipe.generate)
            return translate(translator, islice(recipe.objective.dataset().examples(text.val), most), each_chunk)
        return respond(responder(model, text.tokenizer, recipe), islice(recipe.objective.dataset().examples(text.val), most), each_chunk)

    def _questions(self) -> list[str]:
        """The first pairs or conversations as they are shown, up to what the model makes of them."""
        examples = islice(self.parts.recipe.objective.dataset().examples(self.parts.text.val), SHOWN)
        if self.parts.recipe.objective.SOURCE:
            return [f"source: {pair.source}\ntarget: {pair.target}\nmodel:  " for pair in examples]
        conversations = [asked(example) for example in examples]
        return ["\n".join([*(f"{who}: {said}" for who, said in one.before), f"expected: {one.answer}", "model: "]) for one in conversations]

    def _continued(self) -> str:
        recipe = self.parts.recipe
        writer = Writer(self.parts.model, self.parts.text.tokenizer, recipe, over_borders=True)
        [texts] = writer.write([writer.prompt(recipe.generate.prompt)], seed_of("sample"), recipe.log.samples)
        return "\n\n".join(recipe.generate.prompt + written.text for written in texts) + "\n"

    @cached_property
    def _can_score(self) -> bool:
        packages = packages_of(*OF_TEXTS)
        if lacking := left_out(*packages):
            self.say(lacking)
        return any(map(available, packages))
