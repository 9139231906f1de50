"""Text-to-text generation: an encoder-decoder generates the target of a source by beam search."""

from collections.abc import Iterable, Sequence

from mini_tf.data.examples import Pair
from mini_tf.generation.translation import Translator
from mini_tf.pipelines import GenerateOptions, ModelBundle
from mini_tf.pipelines._generators import ENCODER_DECODER_UNSUPPORTED, EncoderDecoderGenerator
from mini_tf.pipelines._references import ReferencePipeline, ReferencePipelineSettings
from mini_tf.recipe.sections import Generate


class Settings(ReferencePipelineSettings):
    FRAMING = "source"
    UNSUPPORTED_OPTIONS = ENCODER_DECODER_UNSUPPORTED
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

    def generator(self, options: GenerateOptions) -> EncoderDecoderGenerator:
        def translator(generate: Generate) -> Translator:
            return _translator(self.bundle, generate, options.context)

        return EncoderDecoderGenerator(self.bundle, options, translator, "source")


def _translator(bundle: ModelBundle, options: Generate, context: int | None = None) -> Translator:
    return Translator(bundle.model, bundle.tokenizer, bundle.source_tokenizer, options, context=context)
