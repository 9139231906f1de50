"""Samples and scored texts that a model generates at the evaluations of a run."""

from collections.abc import Callable
from functools import cached_property

from mini_tf.jobs.messages import copying
from mini_tf.jobs.parts import Parts
from mini_tf.pipelines import pipeline_of
from mini_tf.scores import can_measure, missing_warning, packages_of
from mini_tf.system.errors import RunFault
from mini_tf.system.numbers import counted
from mini_tf.system.progress import show_progress


class Samples:
    """Generates samples with the model of `parts`; objectives without text generation have none."""

    def __init__(self, parts: Parts, say: Callable[[str], None]) -> None:
        self.parts, self.say = parts, say
        self.pipeline, self.settings = pipeline_of(parts), parts.recipe.objective.pipeline()

    def scores(self, full: bool = False, each_chunk: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Metrics of the texts generated for the first eval.translations validation examples; full: for all of them.

        {} if the pipeline has no such metrics. each_chunk is called regularly; what it raises ends the generation.
        """
        limit = self.parts.recipe.eval.translations
        if not limit or not self._can_score:
            return {}
        n_examples = self.parts.data.val.n_documents if full else min(limit, self.parts.data.val.n_documents)
        try:
            with show_progress(f"generating {counted(n_examples, 'text')} to score"):
                return self.pipeline.scores(
                    self.pipeline.generate_with_references(self.parts.data.val, None if full else limit, each_chunk)
                )
        except RunFault as fault:
            self.say(f"no generated texts to score: {fault.message}")
            return {}

    def text(self) -> str | None:
        """The sample of an evaluation; None without generation or log.samples. RunFault if logits are not finite."""
        return self.pipeline.sample(self.parts.data.val) if self.parts.recipe.log.samples else None

    def copied(self, sample: str) -> str | None:
        """A sentence on how much of a sample is copied from the training data; None unless it continues a prompt."""
        if not sample or self.settings is None or not self.settings.CHECK_COPYING:
            return None
        return copying(sample, self.parts.data.train, self.parts.data.tokenizer)

    @cached_property
    def _can_score(self) -> bool:
        metrics = {} if self.settings is None else self.settings.GENERATION_METRICS
        if missing := missing_warning(*packages_of(self.settings, metrics)):
            self.say(missing)
        return can_measure(metrics)
