"""Text to text: what an encoder-decoder makes of a source, found by beam search."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mini_tf.data.examples import Pair
from mini_tf.data.tokenization.input_warnings import InputWarnings
from mini_tf.generation.translation import CHUNK, ROWS, Translation, Translator
from mini_tf.pipelines import GenerateOptions, Output, Subject
from mini_tf.pipelines._options import noted, one_line, with_options
from mini_tf.pipelines._references import Writing, WritingSettings
from mini_tf.recipe.kind_settings import BEAM_OPTIONS, GENERATE_OPTIONS
from mini_tf.recipe.sections import Generate
from mini_tf.system.errors import UsageFault


class Settings(WritingSettings):
    WITHOUT = dict.fromkeys(
        GENERATE_OPTIONS - {*BEAM_OPTIONS, "max_new_tokens", "greedy", "batch_size"},
        "{run} is an encoder-decoder, which follows several texts side by side and draws none",
    )
    DOES = "reads a source and writes its target, such as a translation or a summary"

    def build(self, subject: Subject) -> "Text2Text":
        return Text2Text(subject)


class Text2Text(Writing):
    def write(self, examples: Sequence[Pair]) -> Iterable[str]:
        translator = translator_of(self.subject, self.recipe.generate)
        return (best[0].text for best in translator.translate([pair.source for pair in examples]))

    def references(self, example: Pair) -> Sequence[str]:
        return example.references

    def prompt_of(self, example: Pair) -> str:
        return f"source: {example.source}\ntarget: {example.target}\nmodel:  "

    def generation(self, options: GenerateOptions) -> "Translating":
        return Translating(self.subject, options)


def translator_of(subject: Subject, options: Generate, context: int | None = None) -> Translator:
    """What writes targets with a model, as `options` say."""
    return Translator(subject.model, subject.tokenizer, subject.source_tokenizer, options, context=context)


class Translating:
    """The generation of an encoder-decoder."""

    def __init__(self, subject: Subject, options: GenerateOptions) -> None:
        given, self.options = options.given, options
        self.rows, self.n_best = given.get("batch_size", ROWS), given.get("n_best")
        self.ahead = CHUNK * self.rows
        generate = with_options(subject.recipe.generate, {**given, **({"num_beams": 1} if given.get("greedy") else {})})
        self._refuse_nonsense(generate)
        self.translator = translator_of(subject, generate, options.context)
        self.unread = InputWarnings(subject.source_tokenizer, self.translator.context, "source", "last")

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = ()) -> Iterator[Output]:
        told = [
            self.unread.add([text], source.length, source.cut, place)
            for text, source, place in zip(prompts, self.translator.sources(prompts), places or [""] * len(prompts), strict=True)
        ]
        self.options.unread(self.unread)
        translated = self.translator.translate(prompts, self.rows, self.n_best or 1)
        for prompt, notes, found in zip(prompts, told, translated, strict=True):
            lines = [self._line(one) for one in found]
            yield Output(_result(prompt, found) | noted(notes), lines, lines if self.n_best is not None else [one.text for one in found])

    def _line(self, translation: Translation) -> str:
        text = one_line(translation.text)
        return text if self.n_best is None else f"{translation.score:.4f}\t{text}"

    def _refuse_nonsense(self, options: Generate) -> None:
        given = self.options.given
        if given.get("greedy") and given.get("num_beams", 1) != 1:
            raise UsageFault(f"--greedy is --num-beams 1; --num-beams {given['num_beams']} was given too")
        if (self.n_best or 1) > options.num_beams:
            raise UsageFault(
                f"--n-best {self.n_best}: there are no more texts than beams, {options.num_beams}", hint="give more --num-beams"
            )
        if options.min_new_tokens > options.max_new_tokens:
            raise UsageFault(f"--min-new-tokens {options.min_new_tokens} is more than --max-new-tokens {options.max_new_tokens}")


def _result(prompt: str, found: Sequence[Translation]) -> dict[str, Any]:
    texts, logprobs, scores = ([getattr(one, name) for one in found] for name in ("text", "logprob", "score"))
    return {"prompt": prompt, "texts": texts, "scores": scores, "logprobs": logprobs}
