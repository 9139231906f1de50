"""Continuation of prompts by a decoder. For pipelines of decoders."""

from mini_tf.data.store import Store
from mini_tf.generation.likelihoods import TextScorer
from mini_tf.generation.text_generator import TextGenerator
from mini_tf.parallel.group import ProcessGroup
from mini_tf.pipelines import GenerateOptions, ModelBundle, Pipeline, PipelineSettings
from mini_tf.pipelines._generators import DecoderGenerator
from mini_tf.recipe.kind_settings.pipelines import UNSUPPORTED_BEAM_OPTIONS
from mini_tf.system.seeds import seed_of
from mini_tf.trained.framing import text_affixes


class ContinuationSettings(PipelineSettings):
    COMMAND, FRAMING = "generate", "continued"
    UNSUPPORTED_OPTIONS = UNSUPPORTED_BEAM_OPTIONS
    TEXT_SCORES = {
        "causal": "sum of log p(token | tokens before it); without a separator at the start, from the second token on"
    }
    BABYLM_BACKENDS = {"causal": "causal"}
    CHECK_COPYING = True
    DESCRIPTION = "continues a prompt"

    def build(self, bundle: ModelBundle) -> "Continuation":
        return Continuation(bundle)


class Continuation(Pipeline):
    def sample(self, validation: Store) -> str:
        recipe = self.recipe
        generator = TextGenerator(self.bundle.model, self.bundle.tokenizer, recipe, across_documents=True)
        prompt = generator.encode_prompt(recipe.generate.prompt)
        [texts] = generator.generate([prompt], seed_of("sample"), recipe.log.samples)
        return "\n\n".join(recipe.generate.prompt + generated.text for generated in texts) + "\n"

    def text_scorer(self, kind: str, group: ProcessGroup | None = None) -> TextScorer:
        return TextScorer(self.bundle.model, self.bundle.tokenizer, text_affixes(self.bundle), kind, group)

    def generator(self, options: GenerateOptions) -> DecoderGenerator:
        return DecoderGenerator(self.bundle, options)
