"""Generated texts with references: the base of pipelines that have GENERATION_METRICS."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice, tee
from typing import Any

from mini_tf.data.store import Store
from mini_tf.parallel.dividing import divided
from mini_tf.parallel.group import ProcessGroup
from mini_tf.pipelines import Pipeline, PipelineSettings, TextsWithReferences
from mini_tf.scores import TEXT_METRICS, available
from mini_tf.scores.text_scores import signatures, text_scores, zero_notes
from mini_tf.system.errors import batches_of

CHUNK = 128
"""Examples generated between two calls of `each_chunk`."""
SAMPLE_EXAMPLES = 8
"""Examples in a sample of a run."""


class ReferencePipelineSettings(PipelineSettings):
    COMMAND = "generate"
    GENERATION_METRICS = TEXT_METRICS
    MAIN_METRICS = ("chrf", "rougeL")  # chrF first: it needs no words, which some scripts do not separate
    SUMMARY_METRICS = ("rouge1", "rougeL", "bleu", "chrf", "exact_match")


class ReferencePipeline(Pipeline):
    """Generates a text for each validation example and compares it with the references."""

    def generate_with_references(
        self,
        store: Store,
        limit: int | None = None,
        each_chunk: Callable[[], None] = lambda: None,
        group: ProcessGroup | None = None,
    ) -> TextsWithReferences:
        def generated(chunk: Sequence[Any]) -> Iterable[str]:
            each_chunk()
            return self.generate(chunk)

        examples, referenced = tee(islice(self.recipe.objective.dataset().examples(store), limit))
        texts = divided(group or ProcessGroup(), batches_of(examples, CHUNK), generated)
        yield from zip(texts, map(self.references, referenced), strict=True)

    def generate(self, examples: Sequence[Any]) -> Iterable[str]:
        """One text per example."""
        raise NotImplementedError

    def references(self, example: Any) -> Sequence[str]:
        """The references of an example, all equally correct."""
        raise NotImplementedError

    def format_example(self, example: Any) -> str:
        """An example in a sample, up to the generated text."""
        raise NotImplementedError

    def scores(self, texts: TextsWithReferences) -> dict[str, float]:
        return text_scores(texts)

    def signatures(self, texts: TextsWithReferences) -> dict[str, str]:
        if not available("sacrebleu"):
            return {}
        of_metrics = signatures([references for _, references in texts])
        return {f"{name}_signature": signature for name, signature in of_metrics.items()}

    def zero_notes(self, texts: TextsWithReferences) -> list[str]:
        return zero_notes(texts)

    def sample(self, validation: Store) -> str:
        examples = map(self.format_example, self.recipe.objective.dataset().examples(validation))
        generated = self.generate_with_references(validation, SAMPLE_EXAMPLES)
        return "\n".join(f"{example}{text}\n" for example, (text, _) in zip(examples, generated, strict=False))
