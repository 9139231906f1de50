"""Samples generated during training, and their metrics."""

from collections.abc import Callable
from functools import cached_property

from mini_tf.jobs.closing_messages import copying
from mini_tf.jobs.parts import Parts
from mini_tf.pipelines import pipeline_of
from mini_tf.scores import can_measure, left_out, packages_of
from mini_tf.system.errors import RunFault
from mini_tf.system.waiting import waiting


class Samples:
    """Samples of the model of `parts`; models that do not generate have none."""

    def __init__(self, parts: Parts, say: Callable[[str], None]) -> None:
        self.parts, self.say = parts, say
        self.pipeline, self.settings = pipeline_of(parts), parts.recipe.objective.pipeline()

    def scores(self, whole: bool = False, each_chunk: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Metrics of texts generated for the first eval.translations validation examples, or for all.

        Empty if there are no such metrics. each_chunk is called regularly; an exception from it ends the work.
        """
        wanted = self.parts.recipe.eval.translations
        if not wanted or not self._can_score:
            return {}
        few = self.parts.data.val.n_documents if whole else min(wanted, self.parts.data.val.n_documents)
        try:
            with waiting(f"generating {few:,} texts to score"):
                return self.pipeline.scores(self.pipeline.written(self.parts.data.val, None if whole else wanted, each_chunk))
        except RunFault as fault:
            self.say(f"no texts generated to score: {fault.message}")
            return {}

    def text(self) -> str | None:
        """The sample saved after an evaluation; None if the model does not generate.

        RunFault if its logits are not finite.
        """
        return self.pipeline.sample(self.parts.data.val) if self.parts.recipe.log.samples else None

    def copied(self, sample: str) -> str | None:
        """How much of a sample is copied from the training data; None if samples do not continue text."""
        if not sample or self.settings is None or not self.settings.COPIES:
            return None
        with waiting("comparing the last sample with the training data"):
            return copying(sample, self.parts.data.train, self.parts.data.tokenizer)

    @cached_property
    def _can_score(self) -> bool:
        figures = {} if self.settings is None else self.settings.WRITTEN
        if lacking := left_out(*packages_of(self.settings, figures)):
            self.say(lacking)
        return can_measure(figures)
