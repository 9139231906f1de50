"""What a model writes at the evaluation points of a run, with its scores."""

from collections.abc import Callable
from functools import cached_property

from mini_tf.jobs.closing_messages import copying
from mini_tf.jobs.parts import Parts
from mini_tf.pipelines import pipeline_of
from mini_tf.scores import can_measure, left_out, packages_of
from mini_tf.system.errors import RunFault
from mini_tf.system.progress import show_progress


class Samples:
    """What the model of `parts` can be asked to write; one that fills in, classifies, tags or tells numbers writes nothing."""

    def __init__(self, parts: Parts, say: Callable[[str], None]) -> None:
        self.parts, self.say = parts, say
        self.pipeline, self.settings = pipeline_of(parts), parts.recipe.objective.pipeline()

    def scores(self, whole: bool = False, each_chunk: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Figures of the texts that are written for the first eval.translations held-out examples, or for all of them.

        Nothing where there are no such figures. each_chunk is called now and then; what it raises ends the work.
        """
        wanted = self.parts.recipe.eval.translations
        if not wanted or not self._can_score:
            return {}
        few = self.parts.data.val.n_documents if whole else min(wanted, self.parts.data.val.n_documents)
        try:
            with show_progress(f"generating {few:,} texts to score"):
                return self.pipeline.scores(self.pipeline.written(self.parts.data.val, None if whole else wanted, each_chunk))
        except RunFault as fault:
            self.say(f"nothing written to be scored: {fault.message}")
            return {}

    def text(self) -> str | None:
        """What is kept of a point in training, for people; None where the model does not write.

        RunFault where its scores are no numbers.
        """
        return self.pipeline.sample(self.parts.data.val) if self.parts.recipe.log.samples else None

    def copied(self, sample: str) -> str | None:
        """How much of a sample stands in the training text, for people; None where samples are no continued texts."""
        if not sample or self.settings is None or not self.settings.COPIES:
            return None
        with show_progress("comparing the last sample with the training text"):
            return copying(sample, self.parts.data.train, self.parts.data.tokenizer)

    @cached_property
    def _can_score(self) -> bool:
        figures = {} if self.settings is None else self.settings.WRITTEN
        if lacking := left_out(*packages_of(self.settings, figures)):
            self.say(lacking)
        return can_measure(figures)
