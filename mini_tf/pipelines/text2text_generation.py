"""Text-to-text generation: an encoder-decoder generates the target of a source by beam search."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mini_tf.data.examples import Pair
from mini_tf.data.tokenization.input_warnings import InputWarnings
from mini_tf.generation.translation import BATCH_SIZE, SORTED_BATCHES, Translation, Translator
from mini_tf.pipelines import GenerateOptions, ModelBundle, Output
from mini_tf.pipelines._options import notes_entry, one_line, with_options
from mini_tf.pipelines._references import ReferencePipeline, ReferencePipelineSettings
from mini_tf.recipe.kind_settings import BEAM_OPTIONS, GENERATE_OPTIONS
from mini_tf.recipe.sections import Generate
from mini_tf.system.errors import UsageFault


class Settings(ReferencePipelineSettings):
    UNSUPPORTED_OPTIONS = dict.fromkeys(
        GENERATE_OPTIONS - {*BEAM_OPTIONS, "max_new_tokens", "greedy", "batch_size"},
        "{run} is an encoder-decoder, which uses beam search and does not sample",
    )
    DESCRIPTION = "generates the target of a source, such as a translation or a summary"

    def build(self, bundle: ModelBundle) -> "Text2Text":
        return Text2Text(bundle)


class Text2Text(ReferencePipeline):
    def generate(self, examples: Sequence[Pair]) -> Iterable[str]:
        translator = _translator(self.bundle, self.recipe.generate)
        return (best[0].text for best in translator.translate([pair.source for pair in examples]))

    def references(self, example: Pair) -> Sequence[str]:
        return example.references

    def format_example(self, example: Pair) -> str:
        return f"source: {example.source}\ntarget: {example.target}\nmodel:  "

    def generator(self, options: GenerateOptions) -> "EncoderDecoderGenerator":
        return EncoderDecoderGenerator(self.bundle, options)


def _translator(bundle: ModelBundle, options: Generate, context: int | None = None) -> Translator:
    return Translator(bundle.model, bundle.tokenizer, bundle.source_tokenizer, options, context=context)


class EncoderDecoderGenerator:
    """Generates targets of sources by beam search."""

    def __init__(self, bundle: ModelBundle, options: GenerateOptions) -> None:
        given, self.options = options.given, options
        self.batch_size, self.n_best = given.get("batch_size", BATCH_SIZE), given.get("n_best")
        self.chunk_size = SORTED_BATCHES * self.batch_size
        generate = with_options(bundle.recipe.generate, {**given, **({"num_beams": 1} if given.get("greedy") else {})})
        self._check_options(generate)
        self.translator = _translator(bundle, generate, options.context)
        self.unread = InputWarnings(bundle.source_tokenizer, self.translator.context, "source", "last")

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = ()) -> Iterator[Output]:
        notes = [
            self.unread.add([text], source.length, source.cut, place)
            for text, source, place in zip(prompts, self.translator.encode_sources(prompts), places or [""] * len(prompts), strict=True)
        ]
        self.options.on_unread(self.unread)
        generated = self.translator.translate(prompts, self.batch_size, self.n_best or 1)
        for prompt, own_notes, best in zip(prompts, notes, generated, strict=True):
            lines = [self._line(translation) for translation in best]
            shown = lines if self.n_best is not None else [translation.text for translation in best]
            yield Output(_result(prompt, best) | notes_entry(own_notes), lines, shown)

    def _line(self, translation: Translation) -> str:
        text = one_line(translation.text)
        return text if self.n_best is None else f"{translation.score:.4f}\t{text}"

    def _check_options(self, options: Generate) -> None:
        """UsageFault for contradictory options."""
        given = self.options.given
        if given.get("greedy") and given.get("num_beams", 1) != 1:
            raise UsageFault(f"--greedy is --num-beams 1; --num-beams {given['num_beams']} was given too")
        if (self.n_best or 1) > options.num_beams:
            raise UsageFault(f"--n-best {self.n_best}: must be at most the beam size, {options.num_beams}", hint="increase --num-beams")
        if options.min_new_tokens > options.max_new_tokens:
            raise UsageFault(f"--min-new-tokens {options.min_new_tokens} is more than --max-new-tokens {options.max_new_tokens}")


def _result(prompt: str, best: Sequence[Translation]) -> dict[str, Any]:
    texts, logprobs, scores = ([getattr(translation, name) for translation in best] for name in ("text", "logprob", "score"))
    return {"prompt": prompt, "texts": texts, "scores": scores, "logprobs": logprobs}
