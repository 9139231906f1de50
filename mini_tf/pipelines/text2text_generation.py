"""Text to text: what an encoder-decoder makes of a source, found by beam search."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mini_tf.data.examples import Pair
from mini_tf.data.packing import Packing
from mini_tf.generation.translating import CHUNK, ROWS, Translation, Translator
from mini_tf.pipelines import Answer, Subject, Wish
from mini_tf.pipelines._options import one_line, wished
from mini_tf.pipelines._references import Writing, WritingSettings
from mini_tf.recipe.kind_settings import GENERATE_OPTIONS, OF_BEAMS
from mini_tf.recipe.sections import Generate
from mini_tf.system.errors import UsageFault


class Settings(WritingSettings):
    WITHOUT = dict.fromkeys(
        GENERATE_OPTIONS - {*OF_BEAMS, "max_new_tokens", "greedy", "batch_size"},
        "{run} is an encoder-decoder, which follows several texts side by side and draws none",
    )

    def build(self, subject: Subject) -> "Text2Text":
        return Text2Text(subject)


class Text2Text(Writing):
    def write(self, examples: Sequence[Pair]) -> Iterable[str]:
        translator = translator_of(self.subject, self.recipe.generate)
        return (best[0].text for best in translator.translate([pair.source for pair in examples]))

    def references(self, example: Pair) -> Sequence[str]:
        return example.references

    def question(self, example: Pair) -> str:
        return f"source: {example.source}\ntarget: {example.target}\nmodel:  "

    def generation(self, wish: Wish) -> "Translating":
        return Translating(self.subject, wish)

    def cut(self, packing: Packing) -> str:
        context = packing.shape.context
        told = f"of {packing.n_rows:,} pairs are longer than the model's context of {context} and are cut there"
        return f"{packing.n_longer:,} {told}" if packing.n_longer else ""


def translator_of(subject: Subject, wish: Generate, context: int | None = None) -> Translator:
    """What writes targets with a model, as `wish` says."""
    return Translator(subject.model, subject.tokenizer, subject.source_tokenizer, wish, context=context)


class Translating:
    """The generation of an encoder-decoder."""

    def __init__(self, subject: Subject, wish: Wish) -> None:
        given, self.wish = wish.given, wish
        self.rows, self.n_best = given.get("batch_size", ROWS), given.get("n_best")
        self.ahead = CHUNK * self.rows
        generate = wished(subject.recipe.generate, {**given, **({"num_beams": 1} if given.get("greedy") else {})})
        self._refuse_nonsense(generate)
        self.translator = translator_of(subject, generate, wish.context)

    def answers(self, prompts: Sequence[str], places: Sequence[str] = ()) -> Iterator[Answer]:
        for source, place in zip(self.translator.sources(prompts), places or [""] * len(prompts), strict=True):
            if source.cut:
                where = f"{place}: " if place else ""
                self.wish.say(
                    f"{where}the source has {source.length} tokens; the last {source.cut} are cut off, the model reads the others"
                )
        for prompt, found in zip(prompts, self.translator.translate(prompts, self.rows, self.n_best or 1), strict=True):
            lines = [self._line(one) for one in found]
            yield Answer(_result(prompt, found), lines, lines if self.n_best is not None else [one.text for one in found])

    def _line(self, translation: Translation) -> str:
        text = one_line(translation.text)
        return text if self.n_best is None else f"{translation.score:.4f}\t{text}"

    def _refuse_nonsense(self, wish: Generate) -> None:
        given = self.wish.given
        if given.get("greedy") and given.get("num_beams", 1) != 1:
            raise UsageFault(f"--greedy is --num-beams 1; --num-beams {given['num_beams']} was given too")
        if (self.n_best or 1) > wish.num_beams:
            raise UsageFault(f"--n-best {self.n_best}: there are no more texts than beams, {wish.num_beams}", hint="give more --num-beams")
        if wish.min_new_tokens > wish.max_new_tokens:
            raise UsageFault(f"--min-new-tokens {wish.min_new_tokens} is more than --max-new-tokens {wish.max_new_tokens}")


def _result(prompt: str, found: Sequence[Translation]) -> dict[str, Any]:
    texts, logprobs, scores = ([getattr(one, name) for one in found] for name in ("text", "logprob", "score"))
    return {"prompt": prompt, "texts": texts, "scores": scores, "logprobs": logprobs}
