"""What a run says: machine, model and data at its start, a line per step, metrics and hints at its end."""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from mini_tf.data.store import Store
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.drawing.terminal import sparkline
from mini_tf.generation.copying import MIN_RUN, copied_share
from mini_tf.jobs.initial import shorten
from mini_tf.jobs.parts import Parts
from mini_tf.recipe.kind_settings import changed_training_keys
from mini_tf.recipe.kind_settings.objectives import ObjectiveSettings
from mini_tf.recipe.recipe import Recipe
from mini_tf.scores import missing_warning, packages_of
from mini_tf.system.numbers import counted
from mini_tf.training.loop import Progress, Report
from mini_tf.training.schedule import Horizon, lr_factor


class Reporter(Protocol):
    """Prints and logs the messages of a run."""

    log: Any
    crash: Any

    def say(self, line: str) -> None: ...
    def detail(self, line: str) -> None: ...
    def warn(self, line: str) -> None: ...
    def bar(self, total: int, initial: int) -> Any: ...


LOW_LR = 0.5
"""--extend prints a warning if the schedule ended below this share of the peak learning rate."""
MANY_EPOCHS = 200
"""More epochs than a small corpus is worth."""
MIN_TOKENS_PER_ENTRY = 20
"""Training tokens per vocabulary entry, below which most entries are too rare to learn."""


def report_start(parts: Parts, reporter: Reporter) -> None:
    """Print machine, model, data, batch sizes and evaluations of a run, and warn of likely mistakes."""
    recipe, data = parts.recipe, parts.data
    parameters = sum(p.numel() for p in parts.model.parameters())
    additional = sum(p.numel() for p in parts.trainable.parameters()) - parameters
    for line in (parts.setup.describe(), *parts.sharding.describe(recipe.runtime.reduce)):
        reporter.say(line)
    vocabulary = data.tokenizer.vocabulary.size
    reporter.say(f"model: {recipe.model.kind}, {parameters:,} parameters, vocabulary {vocabulary:,}")
    if additional:
        whose = f"{additional:,} additional parameters, which are not part of the model"
        reporter.say(f"objective: {recipe.objective.kind}, {whose}")
    if parts.loaded is not None:
        reporter.say(parts.loaded.describe())
        for line in parts.loaded.list_names():
            reporter.detail(line)
        if parts.loaded.warning:
            reporter.warn(parts.loaded.warning)
    for line in (*_trainable(parts, parameters), *recipe.objective.dataset().summary(data)):
        reporter.say(line)
    pipeline = recipe.objective.pipeline()
    if pipeline is not None and (missing := missing_warning(*packages_of(pipeline, pipeline.METRICS))):
        reporter.say(missing)
    for line in (_length(parts), *_words(parts), _evaluations(parts)):
        reporter.say(line)
    for warning in _warnings(parts):
        reporter.warn(warning)


def report_extension(recipe: Recipe, reporter: Reporter) -> None:
    """Warn if --extend raises the learning rate again, and with it the loss."""
    end = lr_factor(recipe.schedule, 999, 1000)
    if end < LOW_LR:
        reporter.warn(
            f"--extend restarts the schedule ({recipe.schedule.kind}): the learning rate rises from {end:.0%} to 100%"
            " of optimizer.lr, and the loss rises with it before both fall again; a run trained with"
            " schedule.kind=constant from the start avoids this"
        )


def _trainable(parts: Parts, parameters: int) -> Iterator[str]:
    trainable = {name: p.numel() for name, p in parts.model.named_parameters() if p.requires_grad}
    if (n := sum(trainable.values())) < parameters:
        yield f"trainable parameters: {n:,} of {parameters:,} ({100 * n / parameters:.1f} %)"
    if parts.fully_trainable is not None:
        names = [name for name in trainable if name in parts.fully_trainable]
        only = "only adapter parameters are trainable"
        yield f"fully trainable beside the adapter: {shorten(names)}" if names else only


def _length(parts: Parts) -> str:
    train, horizon, micro = parts.recipe.train, parts.schedule.horizon, parts.setup.micro_batch_size
    batch_size = parts.plan.batch_size
    size = f"{-(-batch_size // micro)} x {micro}" if micro < batch_size else f"{batch_size}"
    rows = f"at most {size} rows of similar length" if train.batch_tokens else f"{size} rows of {train.context}"
    length = f"{horizon.seconds:g} seconds" if horizon.steps is None else f"{horizon.steps:,} steps, {_epochs(parts)}"
    return f"training: {length}, {train.step_tokens:,} tokens per step ({rows})"


def _epochs(parts: Parts) -> str:
    return f"{times((parts.schedule.horizon.steps or 0) / parts.plan.epoch_steps)} epochs"


def _words(parts: Parts) -> Iterator[str]:
    """The words of the training text, and the steps of `checkpoint.at_words`."""
    steps, words = parts.schedule.horizon.steps, parts.data.train.words
    if parts.recipe.train.words is None and not parts.word_steps:
        return
    read = "" if steps is None else f", about {steps * parts.words_per_step:,.0f} read in the run"
    yield f"words: {words:,} in the training text{read}"
    last = math.inf if steps is None else steps
    if reached := [f"{n:,} after step {step:,}" for step, n in parts.word_steps.items() if step <= last]:
        yield f"checkpoints by words: {', '.join(reached)}"
    if missed := [f"{n:,}" for step, n in parts.word_steps.items() if step > last]:
        yield f"not read in the run, so no checkpoint: {', '.join(missed)} words"


def _evaluations(parts: Parts) -> str:
    """The line on how often the run is evaluated, and on how much of the validation data."""
    horizon, count = parts.schedule.horizon, parts.evaluations.count(parts.schedule.horizon)
    if count == 1:
        return f"evaluation: at the end, on {parts.all_validation_data}"
    when = f"{count} times" if horizon.steps is None else f"every {parts.evaluations.interval(horizon.steps):,} steps"
    if parts.sample_tokens is None:
        return f"evaluation: {when}, on {parts.all_validation_data}"
    return f"evaluation: {when}, on {parts.sampled_validation_data}; at the end, on all of them"


def _warnings(parts: Parts) -> Iterator[str]:
    """Of data that are too few, too long or badly split, and of a vocabulary that is too large for them."""
    dataset, context, n_rows = parts.recipe.objective.dataset(), parts.recipe.train.context, parts.train.n_rows
    if dataset.TRUNCATES and (cut := parts.train.n_too_long):
        longer = f"{cut:,} of {parts.data.train.n_documents:,} {dataset.UNIT} are longer than train.context {context}"
        yield f"{longer} and are truncated"
    if n_rows < (batch_size := parts.plan.batch_size):
        fewer = f"the training data fill {counted(n_rows, 'row')}, fewer than the {batch_size} of a batch"
        yield f"{fewer}; rows repeat within a batch"
    if (parts.schedule.horizon.steps or 0) / parts.plan.epoch_steps > MANY_EPOCHS:
        yield f"{_epochs(parts)}: the model will memorize the training data; more data would help"
    if warning := _split_warning(parts) or _vocabulary_warning(parts):
        yield warning


def _split_warning(parts: Parts) -> str | None:
    """A warning if more data were held out from data.train than are left of it."""
    train, val, data = parts.data.train.n_tokens, parts.data.val.n_tokens, parts.recipe.data
    if data.val is not None or val <= train or not parts.recipe.objective.dataset().STREAM or data.split.share > 0.5:
        return None
    return (
        f"{val:,} tokens are validation data, and only {train:,} training data: whole documents are held out, and these"
        " differ in length; give data.val, or data.split='tail 10%', which cuts running text"
    )


def _vocabulary_warning(parts: Parts) -> str | None:
    """A warning if the vocabulary of a newly trained tokenizer is large for the training data."""
    settings, size, tokens = parts.recipe.tokenizer, parts.data.tokenizer.vocabulary.size, parts.data.train.n_tokens
    fitting = max(300, round(tokens // MIN_TOKENS_PER_ENTRY, -2))
    is_large = tokens < MIN_TOKENS_PER_ENTRY * size and fitting < size
    if settings.path is not None or not settings.uses_vocab_size or not is_large:
        return None
    asked = settings.vocab_size
    limit = f" (tokenizer.vocab_size is {asked:,}, but the data yield no more)" if size < asked else ""
    problem = f"a vocabulary of {size:,}{limit} is large for {tokens:,} training tokens: most entries are rare"
    return f"{problem}; try tokenizer.vocab_size={fitting}"


LOSSES = {"training loss": "loss", "validation loss": "val.loss"}
"""Curve name -> key in metrics.jsonl."""
_POSTFIX = {"val.loss": "val {:.3f}", "val.bits_per_byte": "{:.3f} bpb"}


class StepLines:
    """start: progress at the start of this process; horizon: the end of training."""

    def __init__(self, start: Progress, horizon: Horizon) -> None:
        self.start, self.horizon = start, horizon
        self._newest: Mapping[str, float] = {}

    def line(self, report: Report, metrics: str) -> str:
        """`step 26/250 | loss 4.9427 | val.loss 4.8567 | lr 0.04 | 21.3k tok/s | ETA 1:02`.

        loss: of the batch; tok/s: mean since this process started. metrics: of an evaluation, comma-separated, or "".
        """
        steps = "" if self.horizon.steps is None else f"/{self.horizon.steps}"
        losses = [f"step {report.step}{steps}", f"loss {report.loss:.4f}", *metrics.split(", ")]
        return " | ".join(filter(None, [*losses, *self._speed(report), self._eta(report)]))

    def bar_postfix(self, report: Report, evaluated: Mapping[str, float]) -> str:
        """The step's loss, learning rate and throughput, and the newest validation metrics, for the progress bar."""
        self._newest = evaluated or self._newest
        metrics = [text.format(self._newest[name]) for name, text in _POSTFIX.items() if name in self._newest]
        return " | ".join([f"loss {report.loss:.3f}", *metrics, *self._speed(report)])

    def _speed(self, report: Report) -> list[str]:
        tokens_per_second = (report.tokens - self.start.tokens) / max(report.seconds - self.start.seconds, 1e-9)
        speed = f"{tokens_per_second / 1000:.3g}k" if tokens_per_second >= 1000 else f"{tokens_per_second:.0f}"
        return [f"lr {report.lr:.2g}", f"{speed} tok/s"]

    def _eta(self, report: Report) -> str:
        """The remaining time, from the tenth step on."""
        done = report.step - self.start.step
        if self.horizon.steps is None:
            left = (self.horizon.seconds or 0.0) - report.seconds
        else:
            left = (report.seconds - self.start.seconds) / done * (self.horizon.steps - report.step)
        return f"ETA {_clock(left)}" if done >= 10 and left >= 1 else ""


def curves(points: Mapping[str, Sequence[tuple[int, float]]]) -> Iterator[str]:
    """One line per curve of (step, loss): its first loss, a sparkline, its last loss."""
    for name, curve in points.items():
        losses = [loss for _, loss in curve]
        if len(losses) > 1:
            yield f"{name:<15} {losses[0]:.2f} {sparkline(losses)} {losses[-1]:.2f}"


def _clock(seconds: float) -> str:
    """62.4 -> "1:02", 7384 -> "2:03:04"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


WIDE_GAP = 0.25
"""Overfitting is reported if the gap to the training loss exceeds this share of the validation loss."""
_COMMON = ("loss", "bits_per_byte", "accuracy")


def format_metrics(metrics: Mapping[str, float], objective: ObjectiveSettings) -> str:
    """The main validation metrics, comma-separated."""
    pipeline = objective.pipeline()
    names = (f"val.{name}" for name in (*_COMMON, *(() if pipeline is None else pipeline.SUMMARY_METRICS)))
    return ", ".join(f"{name} {metrics[name]:.4f}" for name in names if name in metrics)


def next_commands(folder: Path, command: str | None, options: str = "") -> str:
    """The commands to try on a finished run. command: of its pipeline; None: none. options: of `minitf evaluate`."""
    shown = quoted(folder)
    return f"next: minitf evaluate {shown}{options}" + (f"; minitf {command} {shown}" if command else "")


def quoted(path: Path) -> str:
    """A path as it is written in a shell, relative to the current folder if it is below it."""
    current = Path.cwd()
    return shlex.quote(str(path.relative_to(current) if path.is_relative_to(current) else path))


def times(number: float) -> str:
    """A number of epochs without exponent: 0.0073, 2.5, 112."""
    return f"{number:,.0f}" if number >= 99.5 else f"{number:.2g}"


def overfitting(epochs: float, train_loss: float, val_loss: float, objective: ObjectiveSettings) -> str:
    """Both losses at the last evaluation, and a hint if the model overfits; none if the losses are not comparable.

    train_loss: mean since the previous evaluation. val_loss: of the last evaluation, possibly on a sample.
    """
    start = f"{times(epochs)} epochs; last evaluation: validation loss {val_loss:.2f}"
    keys = reversed(changed_training_keys(objective))
    unlike = " and ".join(key.removesuffix("_rate").replace("_", " ") for key in keys)
    if unlike:
        return f"{start}, mean training loss with {unlike} {train_loss:.2f}"
    overfits = val_loss - train_loss > WIDE_GAP * val_loss
    hint = "; the model overfits: more training data, fewer steps or dropout would help" if overfits else ""
    return f"{start}, mean training loss since the previous evaluation {train_loss:.2f}{hint}"


def copying(sample: str, store: Store, tokenizer: Tokenizer) -> str:
    """The share of a sample that is copied verbatim from the training data, as a sentence."""
    share = copied_share(sample, store, tokenizer)
    data = "the training data" if store.streamed is None else "a sample of the data"
    return f"{share:.0%} of the last sample is copied verbatim from {data} (runs of {MIN_RUN} words or more)"
