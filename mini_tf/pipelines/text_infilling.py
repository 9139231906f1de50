"""Text infilling: an encoder-decoder fills each [MASK] of a prompt with any number of tokens, by beam search."""

from collections.abc import Iterator, Sequence

from mini_tf.data.store import Store
from mini_tf.data.tokenization.prompts import MASK
from mini_tf.data.tokenization.vocabulary import first_tokens
from mini_tf.generation.translation import Infiller
from mini_tf.pipelines import GenerateOptions, ModelBundle, Output, Pipeline, PipelineSettings
from mini_tf.pipelines._generators import ENCODER_DECODER_UNSUPPORTED, EncoderDecoderGenerator, outputs_before_fault
from mini_tf.recipe.sections import Generate

SAMPLE_DOCUMENTS = 4
SAMPLE_WORDS = 24
"""Words of each validation document in a sample of a run, the middle third of which is masked."""


class Settings(PipelineSettings):
    COMMAND, FRAMING, READS_MASKS = "generate", "source", True
    UNSUPPORTED_OPTIONS = ENCODER_DECODER_UNSUPPORTED
    DESCRIPTION = "fills each [MASK] of a prompt with text"

    def build(self, bundle: ModelBundle) -> "TextInfilling":
        return TextInfilling(bundle)


class TextInfilling(Pipeline):
    def sample(self, validation: Store) -> str:
        documents = (validation.document(n) for n in range(min(SAMPLE_DOCUMENTS, validation.n_documents)))
        kept = (ids[: first_tokens(self.bundle.tokenizer.vocabulary, ids, 8 * SAMPLE_WORDS)] for ids in documents)
        prompts = [_masked(self.bundle.tokenizer.decode(ids)) for ids in kept]
        filled = (best[0].text for best in _infiller(self.bundle, self.recipe.generate).translate(prompts))
        return "\n".join(f"prompt: {prompt}\nmodel:  {text}\n" for prompt, text in zip(prompts, filled, strict=True))

    def generator(self, options: GenerateOptions) -> "InfillingGenerator":
        return InfillingGenerator(self.bundle, options)


def _masked(text: str) -> str:
    """The first words of a text, with a mask in the place of the middle third."""
    words = text.split()[:SAMPLE_WORDS]
    third = len(words) // 3
    return " ".join([*words[:third], MASK, *words[len(words) - third :]])


def _infiller(bundle: ModelBundle, options: Generate, context: int | None = None) -> Infiller:
    return Infiller(
        bundle.model, bundle.tokenizer, bundle.recipe.objective.TOKENS.count("sentinel"), options, context=context
    )


class InfillingGenerator(EncoderDecoderGenerator):
    """Fills the masks of prompts."""

    def __init__(self, bundle: ModelBundle, options: GenerateOptions) -> None:
        def infiller(generate: Generate) -> Infiller:
            self.infiller = _infiller(bundle, generate, options.context)
            return self.infiller

        super().__init__(bundle, options, infiller, "prompt")

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = ()) -> Iterator[Output]:
        yield from outputs_before_fault(super().outputs, self.infiller.check, prompts, places)
