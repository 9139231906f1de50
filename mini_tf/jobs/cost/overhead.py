"""What a run does besides its steps: evaluations, samples, checkpoints and the picture at the end, each done once and timed."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

import torch

from mini_tf.jobs.parts import Parts
from mini_tf.jobs.samples import Samples
from mini_tf.jobs.session import save
from mini_tf.pipelines import pipeline_of
from mini_tf.recipe.sections import Checkpoint
from mini_tf.run.disk import Disk
from mini_tf.run.folder import CheckpointTensors, Run
from mini_tf.run.manifest import Manifest
from mini_tf.system.cache import cache_folder
from mini_tf.system.temporary_files import remove_path, temporary_path
from mini_tf.training.due import Evaluations

EVALUATED_SECONDS = 1.0
"""An evaluation is timed on about so much of the text, and the rest is taken to be like it."""
WRITTEN_TOKENS = 256
"""Of a longer sample only so many are written, and the rest is taken to be like them."""
SAVED_BYTES = 1 << 26
"""Of a larger checkpoint only so many are written."""
DRAWN_STEPS = 100


@dataclass(frozen=True)
class Overhead:
    """Seconds of each, done once. whole: an evaluation of all held-out text; evaluation: one of those on the way."""

    evaluation: float
    whole: float
    sample: float
    save: float
    closing: float


def overhead_of(parts: Parts, state_bytes: int) -> Overhead:
    """`state_bytes`: what the optimizer keeps in a checkpoint besides the weights. What is written is removed again."""
    tokens = parts.held_out_tokens
    rate = _evaluated_per_second(parts, tokens)
    pipeline = parts.recipe.objective.pipeline()
    if pipeline is not None and pipeline.WRITTEN:
        (sample, last), text = _answer(parts), ""
    else:
        (sample, text), last = _continue(parts), 0.0
    weights = sum(t.numel() * t.element_size() for t in [*parts.model.weights().values(), *parts.own_tensors().values()])
    return Overhead(
        evaluation=parts.sample_size / rate,
        whole=tokens / rate,
        sample=sample,
        save=_save(weights, state_bytes, parts.recipe.checkpoint),
        closing=_draw() + last + _seconds(partial(Samples(parts, lambda line: None).copied, text)),
    )


def how_often(due: Evaluations, steps: int, seconds: float | None) -> tuple[int, int]:
    """Evaluations and checkpoints of a run, both also after the last step; each evaluation is taken for the best so far.

    seconds: where the clock decides.
    """
    recipe = due.recipe
    clocked = seconds is not None and recipe.eval.every_steps == "auto"
    period = max(1, steps // due.within(seconds or 0.0)) if clocked else due.every(steps)
    evaluations = math.ceil(steps / period)
    saves = recipe.checkpoint.every_steps
    others = steps // saves - steps // math.lcm(saves, period) if isinstance(saves, int) else 0
    return evaluations, evaluations + others


def _evaluated_per_second(parts: Parts, tokens: int) -> float:
    """Tokens, once the first batch has warmed up."""
    batch = parts.setup.micro_batch_size * parts.recipe.train.context
    few = min(tokens, batch * max(1, int(EVALUATED_SECONDS / _evaluate(parts, min(tokens, batch)))))
    return few / _evaluate(parts, few)


def _evaluate(parts: Parts, tokens: int) -> float:
    return _seconds(partial(parts.evaluate, tokens))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _continue(parts: Parts) -> tuple[float, str]:
    """Seconds of a run's sample at one point, and the sample; none where the model does not write."""
    recipe = parts.recipe
    length = min(recipe.generate.max_new_tokens, WRITTEN_TOKENS)
    for tokens in (2, length):  # a few to warm up
        shorter = recipe.model_copy(update={"generate": recipe.generate.model_copy(update={"max_new_tokens": tokens})})
        samples, began = Samples(replace(parts, recipe=shorter), lambda line: None), time.perf_counter()
        text = samples.text()
        taken = time.perf_counter() - began
    return (0.0, "") if text is None else (taken * recipe.generate.max_new_tokens / length, text)


def _answer(parts: Parts) -> tuple[float, float]:
    """Seconds of a run's translations or answers, judged and shown, at one point, and of all that are held out at its end."""
    pipeline_of(parts).scores(iter([("a", ["a"])]))  # what makes the figures is imported once
    samples = Samples(parts, lambda line: None)
    judged, shown = _seconds(samples.scores), _seconds(samples.text)
    few = min(parts.recipe.eval.translations, parts.val.n_rows)
    return judged + shown, judged * parts.val.n_rows / few if few else 0.0


def _save(weights: int, state: int, keep: Checkpoint) -> float:
    """Seconds to save and publish a checkpoint of so many bytes, in the cache."""
    share = min(1.0, SAVED_BYTES / (weights + state))
    model, moments = ({"all": torch.zeros(int(size * share), dtype=torch.uint8)} for size in (weights, state))
    with _run() as run:
        return _seconds(lambda: save(run, 0, CheckpointTensors(model, moments, {}), {}, 0.0, keep)) / share


@cache
def _draw() -> float:
    """Seconds of the picture at the end, most of them for importing what draws: so only the first time tells."""
    with _run() as run:
        for step in range(DRAWN_STEPS):
            run.record({"step": step, "loss": 1.0, "val.loss": 1.0})
        return _seconds(run.plot_losses)


@contextlib.contextmanager
def _run() -> Iterator[Run]:
    """A run in a folder that nobody will find, removed again, by the next one where this process is killed."""
    folder = temporary_path(cache_folder() / "cost")
    folder.mkdir()
    try:
        run = Run(folder, Manifest(), -1, "new", Disk())
        run.start(existed=True)
        yield run
    finally:
        remove_path(folder)
