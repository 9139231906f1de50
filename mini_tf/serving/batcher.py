"""Requests wait in a bounded queue; a thread takes those that can be computed together, as soon as it is free.

No request waits for others to come: while one batch is computed, the next one gathers. The model is used by this thread
alone. `ServedModel` computes batches of texts, labels and vectors, by what the commands use.
"""

import random
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from mini_tf.pipelines import Output, PipelineSettings, Predictor, pipeline_of
from mini_tf.pipelines._commands import open_generator, predict_settings
from mini_tf.system.errors import MinitfError, to_minitf_error
from mini_tf.trained.evaluating import other_data
from mini_tf.trained.opening import Trained
from mini_tf.trained.text_vectors import Embedder


class QueueFull(Exception):
    """Too many requests wait."""


class Cancelled(Exception):
    """A request was given up, or its time is over."""


@dataclass(eq=False)
class Job:
    """A request. Jobs with equal `key` are computed together.

    size: rows of a batch that its items take. finish: called by the thread, once, with a result for each item, or with
    an error. follow: called with the number of a text and each piece of it. alone: what no two jobs of a batch share.
    """

    key: Hashable
    items: Sequence[Any]
    finish: Callable[[Sequence[Any] | Exception], object]
    size: int = 1
    follow: Callable[[int, str], object] | None = None
    alone: frozenset[Any] = frozenset()
    deadline: float = float("inf")
    streamed: bool = False
    _given_up: threading.Event = field(default_factory=threading.Event)

    def stream(self, number: int, piece: str) -> None:
        """Pass on a piece of a text, which cannot be taken back."""
        if piece and self.follow is not None:
            self.streamed = True
            self.follow(number, piece)

    def cancel(self) -> None:
        """Nobody waits for the result any more."""
        self._given_up.set()

    @property
    def over(self) -> bool:
        """Whether it was given up, or its time is over."""
        return self._given_up.is_set() or time.monotonic() > self.deadline


Work = Callable[[Any, Sequence[Job]], Sequence[Sequence[Any]]]
"""Computes the results of each of the jobs, which have this key."""


class Batcher:
    """work: computes a batch. most_rows: of a batch; most_waiting: jobs in the queue.

    report: called with a bug, which its job gets too.
    """

    def __init__(self, work: Work, most_rows: int, most_waiting: int, report: Callable[[Exception], None]) -> None:
        self._work, self._most_rows, self._most_waiting, self._report = work, most_rows, most_waiting, report
        self._waiting: list[Job] = []
        self._changed, self._closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Put a job into the queue. QueueFull if there is no room."""
        with self._changed:
            if self._closed or len(self._waiting) >= self._most_waiting:
                raise QueueFull
            self._waiting.append(job)
            self._changed.notify()

    def close(self, seconds: float = 5.0) -> None:
        """Give up what waits, and end the thread after its batch."""
        with self._changed:
            self._closed = True
            for job in self._waiting:
                job.cancel()
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            ready = [job for job in batch if not job.over]
            for job in batch:
                if job not in ready:
                    job.finish(Cancelled())
            if ready:
                self._compute(ready)

    def _next(self) -> list[Job] | None:
        """The oldest job, and those behind it that go with it; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting) or self._closed)
            if not self._waiting:
                return None
            first = self._waiting[0]
            batch, rows, alone = [first], first.size, first.alone
            for job in self._waiting[1:]:
                if job.key == first.key and rows + job.size <= self._most_rows and not alone & job.alone:
                    batch.append(job)
                    rows, alone = rows + job.size, alone | job.alone
            self._waiting = [job for job in self._waiting if job not in batch]
            return batch

    def _compute(self, jobs: Sequence[Job]) -> None:
        """An error of one job is not that of the others: those that have streamed nothing are computed one by one."""
        try:
            results: Sequence[Any] = self._work(jobs[0].key, jobs)
        except Exception as error:
            retried = [job for job in jobs if not job.streamed] if len(jobs) > 1 else []
            for job in retried:
                self._compute([job])
            if not (jobs := [job for job in jobs if job not in retried]):
                return
            if not isinstance(error, MinitfError):
                self._report(error)
            results = [to_minitf_error(error)] * len(jobs)
        for job, result in zip(jobs, results, strict=True):
            job.finish(Cancelled() if job.over else result)


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
            job, index = owners[number]
            job.stream(index, piece)
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
