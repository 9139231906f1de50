"""Text generation: a decoder continues prompts."""

from mini_tf.data.store import Store
from mini_tf.generation.text_generator import TextGenerator
from mini_tf.pipelines import GenerateOptions, Pipeline, PipelineSettings, Subject
from mini_tf.pipelines._continuing import Continuing
from mini_tf.recipe.kind_settings import NO_BEAM_OPTIONS
from mini_tf.system.seeds import seed_of


class Settings(PipelineSettings):
    COMMAND = "generate"
    WITHOUT = NO_BEAM_OPTIONS
    COPIES = True
    DOES = "continues a prompt"

    def build(self, subject: Subject) -> "TextGeneration":
        return TextGeneration(subject)


class TextGeneration(Pipeline):
    def sample(self, held_out: Store) -> str:
        recipe = self.recipe
        writer = TextGenerator(self.subject.model, self.subject.tokenizer, recipe, over_borders=True)
        [texts] = writer.write([writer.prompt(recipe.generate.prompt)], seed_of("sample"), recipe.log.samples)
        return "\n\n".join(recipe.generate.prompt + written.text for written in texts) + "\n"

    def generation(self, options: GenerateOptions) -> Continuing:
        return Continuing(self.subject, options)
