"""Computes batches of requests with one model: texts, labels and vectors, by what the commands use."""

import random
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from mini_tf.pipelines import Output, PipelineSettings, Predictor, pipeline_of
from mini_tf.pipelines._commands import open_generator, predict_settings
from mini_tf.serving.batcher import Job
from mini_tf.trained.evaluating import other_data
from mini_tf.trained.opening import Trained
from mini_tf.trained.text_vectors import Embedder


class Asked(NamedTuple):
    """What jobs have in common: the method of `ServedModel` that computes them, and options by name."""

    method: str
    options: tuple[tuple[str, Any], ...] = ()


class ServedModel:
    """A trained model that `compute`s batches; everything else may be called at any time, from any thread."""

    def __init__(self, trained: Trained) -> None:
        self.trained, self.name = trained, trained.folder.name

    @property
    def settings(self) -> PipelineSettings | None:
        return self.trained.recipe.objective.pipeline()

    @property
    def chats(self) -> bool:
        """Whether a prompt is a message that is answered."""
        return self.settings is not None and self.settings.ANSWERS_MESSAGES

    def is_random(self, options: Mapping[str, Any]) -> bool:
        """Whether texts depend on a seed that no option gives."""
        greedy = self.trained.recipe.generate.with_options(options).greedy
        supported = self.settings is None or "seed" not in self.settings.UNSUPPORTED_OPTIONS
        return supported and not greedy and "seed" not in options

    def compute(self, asked: Asked, jobs: Sequence[Job]) -> Sequence[Sequence[Any]]:
        """The results of the items of each job."""
        items = [item for job in jobs for item in job.items]
        results: Sequence[Any] = getattr(self, f"_{asked.method}")(dict(asked.options), items, jobs)
        remaining = iter(results)
        return [[*islice(remaining, len(job.items))] for job in jobs]

    def _generate(self, options: dict[str, Any], prompts: Sequence[str], jobs: Sequence[Job]) -> list[Output]:
        samples = int(options.get("num_samples", 1))
        owners = [(job, number) for job in jobs for number in range(len(job.items) * samples)]

        def follow(number: int, piece: str) -> bool:
            job, own = owners[number]
            job.tell(own, piece)
            return job.over

        if self.is_random(options):
            options["seed"] = random.getrandbits(62)
        generator = open_generator(self.trained, {**options, "batch_size": len(owners)}, follow=follow)
        return list(generator.outputs(prompts))

    @cached_property
    def predictor(self) -> Predictor:
        """UsageFault if the run predicts no labels."""
        predict_settings(self.trained)
        return pipeline_of(self.trained).predictor(self.trained)

    @cached_property
    def reader(self) -> Any:
        return self.predictor.reader(other_data(self.trained))

    def _predict(self, options: dict[str, Any], examples: Sequence[Any], jobs: Sequence[Job]) -> list[dict[str, Any]]:
        return [prediction.to_json() for prediction in self.predictor.predict(examples)]

    @cached_property
    def embedder(self) -> Embedder:
        """UsageFault for an encoder-decoder."""
        return Embedder(self.trained)

    def _embed(self, options: dict[str, Any], texts: Sequence[str], jobs: Sequence[Job]) -> Sequence[Any]:
        return list(self.embedder.embed(texts, normalize=True).numpy())
