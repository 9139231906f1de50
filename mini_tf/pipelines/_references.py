"""Texts that a model writes, beside those that people wrote: how near they come."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from mini_tf.data.store import Store
from mini_tf.pipelines import GeneratedText, Pipeline, PipelineSettings
from mini_tf.scores import TEXT_METRICS, available
from mini_tf.scores.texts import text_scores
from mini_tf.scores.translation import signatures

CHUNK = 128
"""Examples that are written between two looks at whether to stop."""
SHOWN = 8
"""Examples that a sample of a run holds."""


class WritingSettings(PipelineSettings):
    """Of pipelines whose texts have references."""

    COMMAND = "generate"
    WRITTEN = TEXT_METRICS
    MAIN = ("chrf", "rougeL")  # chrF first: it is fair to every script, while ROUGE knows only a to z
    SPOKEN = ("rouge1", "rougeL", "bleu", "chrf", "exact_match")


class Writing(Pipeline):
    """Writes an answer to each held-out example."""

    def written(self, store: Store, most: int | None = None, each_chunk: Callable[[], None] = lambda: None) -> GeneratedText:
        left = islice(self.recipe.objective.dataset().examples(store), most)
        while chunk := list(islice(left, CHUNK)):
            each_chunk()
            yield from zip(self.write(chunk), map(self.references, chunk), strict=True)

    def write(self, examples: Sequence[Any]) -> Iterable[str]:
        """What the model writes for each example."""
        raise NotImplementedError

    def references(self, example: Any) -> Sequence[str]:
        """What each text is compared with, of which one is as good as another."""
        raise NotImplementedError

    def prompt_of(self, example: Any) -> str:
        """An example as a sample shows it, up to what the model makes of it."""
        raise NotImplementedError

    def scores(self, written: GeneratedText) -> dict[str, float]:
        return text_scores(written)

    def signatures(self) -> dict[str, str]:
        return {f"{name}_signature": signature for name, signature in signatures().items()} if available("sacrebleu") else {}

    def sample(self, held_out: Store) -> str:
        prompts = map(self.prompt_of, self.recipe.objective.dataset().examples(held_out))
        return "\n".join(f"{prompt}{text}\n" for prompt, (text, _) in zip(prompts, self.written(held_out, SHOWN), strict=False))
