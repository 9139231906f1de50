"""The training session of a run: runs the training loop, and evaluates, logs, samples and saves when due.

Of several processes all do the same, but only rank 0 writes and samples.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mini_tf.jobs.messages import Reporter, StepLines, format_metrics, quoted
from mini_tf.jobs.parts import Parts, training_of
from mini_tf.jobs.samples import Samples
from mini_tf.nn import state as states
from mini_tf.recipe.metrics import until_gate
from mini_tf.run import diverged_step
from mini_tf.run.folder import Run
from mini_tf.run.following import resume
from mini_tf.run.location import save_checkpoint
from mini_tf.run.tensors import CheckpointTensors, ExpectedTensors, specs
from mini_tf.system.errors import RunFault
from mini_tf.system.progress import show_progress
from mini_tf.training.counters import Counters
from mini_tf.training.due import NEVER, Due
from mini_tf.training.evaluation import MetricAccumulator
from mini_tf.training.loop import DivergedStep, Progress, Report, train
from mini_tf.training.optimizer import build as build_optimizer
from mini_tf.training.signals import StopRequest


@dataclass(frozen=True)
class RunResult:
    """metrics: by the names that --assert uses. exit_code: 0, or 128 + signal number."""

    folder: Path
    metrics: dict[str, float | None]
    exit_code: int = 0


class Session:
    """The training of one run, from its newest checkpoint to its end."""

    def __init__(self, run: Run, parts: Parts, reporter: Reporter, started: float, stop_at: int | None = None) -> None:
        self.run, self.parts, self.reporter, self.stop_at = run, parts, reporter, stop_at or NEVER
        self.sharding = parts.sharding
        self.optimizer = build_optimizer(
            parts.recipe.optimizer, parts.trainable, parts.setup.compute_dtype, self.sharding
        )
        self.training = replace(training_of(parts, run.manifest.extensions, self.optimizer), warn=self._without_graphs)
        self._record_fallbacks(parts.setup.fallbacks)
        self.group = parts.group
        self.until = until_gate(parts.recipe.eval)
        self._dues: dict[int, Due] = {}
        self.counters = Counters(_started=started)
        self.samples = Samples(parts, reporter.say)
        self.start, self.skips = Progress(), 0
        self.saved = 0  # step of the newest checkpoint
        self.finished = False  # no further step is to be trained
        self.lines = StepLines(self.start, self.training.schedule.horizon)
        self.full: tuple[int, dict[str, float]] | None = None  # step and metrics of the last full evaluation

    def train(self, stop: StopRequest) -> int:
        """Train to the end of the run, `stop_at` or `stop`; returns the last step, which is saved. Sets `finished`."""
        self._resume()
        if self.finished or self.start.step >= self.stop_at:
            return self.start.step
        report, score = None, None
        with (
            self.reporter.bar(self.training.schedule.horizon.steps or 0, initial=self.start.step) as bar,
            self._dump_divergence(),
        ):
            for report in _with_wait_message(train(self.training, self.start)):
                self._count(report)
                last = self.training.schedule.finished(report.step, report.seconds)
                # Before --extend; the checkpoint of this step was lost.
                ended = self.training.schedule.starts_at(report.step)
                score = self._evaluate(report, bar) if last or ended or self._due(report).evaluation(report) else None
                if score is None:
                    self._record(report, {}, bar)
                self.finished = last or (score is not None and not ended and self._stops_early())
                stopping = self.agree(stop) or report.step >= self.stop_at
                is_due = self.finished or ended or stopping or self._due(report).checkpoint(report)
                if is_due or score == self.counters.best or report.step in self.parts.word_steps:
                    self._save(report, score)
                    self._reset_patience(report.step)
                if score is not None and not stopping:  # after a stop, the continuation samples
                    self._sample(report.step)
                worked = score is not None or self.saved == report.step  # rank 0 alone, which may take long
                if self.finished or stopping or (worked and self.agree(stop)):
                    break
            else:
                self.finished = True
        if report is None:
            return self.start.step
        self._complete_last_step(report, score, bar)
        return report.step

    def _without_graphs(self, line: str) -> None:
        self.reporter.warn(line)
        self._record_fallbacks({"graphs": line})

    def _record_fallbacks(self, reasons: dict[str, str]) -> None:
        """Record in run.json why settings were given up, beside what was chosen at the first start."""
        if reasons:
            auto = self.run.manifest.auto
            self.run.update(auto=auto | {"fallbacks": auto.get("fallbacks", {}) | reasons})

    def agree(self, stop: StopRequest) -> bool:
        """Whether any process was asked to stop; then all are, so that they stop after the same step."""
        agreed: int = max(self.group.all_gather(stop.number))
        stop.request(agreed)
        return agreed > 0  # not bool(stop): a signal that came since is known to this process only

    def _complete_last_step(self, report: Report, score: float | None, bar: Any) -> None:
        """Evaluate, save and sample after the last step if not done: a stop or the time limit may follow its checks."""
        unevaluated = self.finished and score is None
        if unevaluated:
            score = self._evaluate(report, bar)
        if self.saved != report.step:
            self._save(report, score)
        if unevaluated:
            self._sample(report.step)

    def _count(self, report: Report) -> None:
        """Update the counters, and warn of skipped steps and of jumps of the loss."""
        self.skips = report.skips
        if report.problem is not None:
            count = f"{report.skips_in_a_row} in a row, {report.skips} in all"
            self.reporter.warn(f"step {report.step}: {report.problem.message}; the step is skipped ({count})")
            return
        if self.counters.is_spike(report.loss):
            mean = f"mean since the last evaluation: {self.counters.mean_loss:.3g}"
            self.reporter.warn(f"step {report.step}: the loss jumps to {report.loss:.3g}; {mean}")
        self.counters.add_step(report.loss)

    @contextmanager
    def _dump_divergence(self) -> Iterator[None]:
        """On divergence, log the step and save it for `inspect crash`; a failing disk does not hide the error."""
        try:
            yield
        except DivergedStep as fault:
            try:
                self.run.record({**self._line(fault.report), "diverged": True})
                setup = diverged_step.DeviceSettings(**self.parts.setup.settings)
                facts = diverged_step.DivergenceInfo(**fault.info(), setup=setup)
                tensors = self._all_tensors(fault.at)
                self.group.on_rank_0(lambda: diverged_step.write(self.run.disk, self.run.folder, facts, tensors))
                self.reporter.say(f"`minitf inspect crash {quoted(self.run.folder)}` replays the step")
            except Exception as error:  # the divergence is the error to report
                self.reporter.warn(f"step {fault.report.step} could not be saved for `minitf inspect crash`: {error}")
            raise

    def _resume(self) -> None:
        now = self._tensors(self.start)
        others = {name for name, tensor in now.optimizer.items() if tensor.is_meta}  # runtime.shard
        expected = ExpectedTensors(specs(now.model), specs(now.optimizer), specs(now.objective), others)
        saved = resume(self.run, self.group, self.reporter.warn, expected)
        if saved is None:
            return
        self.parts.load(saved.model, saved.objective)
        self.optimizer.load(saved.optimizer)
        with saved.restoring():
            self.start = Progress.of(saved.counters, states.unflatten(saved.state))
            self.lines = StepLines(self.start, self.training.schedule.horizon)
            self.counters.load(saved.counters)
        self.skips, self.saved, settings = self.start.skips, self.start.step, self.parts.recipe.checkpoint
        with self.group.independently():  # as after a save, where a process may have been killed
            self.run.rotate(settings.keep_last, settings.keep_best)
        step = self.start.step
        if self.group.on_rank_0(lambda: self.counters.steps == 0 and not self.run.has_sample(step)):
            self._sample(step)  # it was killed before
        self._reset_patience(step)
        self.finished = self._stops_early()

    def _reset_patience(self, step: int) -> None:
        """--extend resets eval.patience, and trains on although eval.until was met."""
        if self.training.schedule.starts_at(step):
            self.counters.patience_counter, self.counters.met = 0, False

    def _due(self, report: Report) -> Due:
        """What is due in the part of the run with this step: before --extend, or after it."""
        part = self.training.schedule.at(report.step - 1)
        return self._dues.setdefault(part.start_step, Due(self.parts.evaluations, part.horizon))

    def measure(
        self,
        tokens: int | None,
        each_batch: Callable[[], None] | None = None,
        accumulator: MetricAccumulator | None = None,
    ) -> dict[str, float]:
        """The metrics of `Parts.evaluate`, by the names that a run records; collective."""
        metrics = self.parts.evaluate(tokens, each_batch, accumulator, together=True)
        return {f"val.{name}": value for name, value in metrics.items() if name != "targets"}

    def _evaluate(self, report: Report, bar: Any) -> float:
        """Evaluate and log after a step; returns the score (`BestMetric`)."""
        tokens = self.parts.sample_tokens
        self.parts.fit_on_validation(tokens)
        measured_here = self.measure(tokens)
        with self.generating(self.parts.recipe.eval.translations):
            # Of rank 0: processors may differ in last bits.
            metrics, scores = self.group.on_rank_0(lambda: [measured_here, self.samples.scores()])
        if tokens is None:
            self.full = report.step, metrics
        measured = metrics | {f"val.{name}": value for name, value in scores.items()}
        score = self.parts.best.score(measured)
        self.counters.add_evaluation(metrics["val.loss"], score)
        known = measured | {"train.loss": self.counters.train_loss}
        self.counters.met = self.until is not None and self.until.failure(known) is None
        self._record(report, known, bar)
        return score

    def _record(self, report: Report, evaluated: dict[str, float], bar: Any) -> None:
        """Update the progress bar, and write metrics.jsonl and the progress line if due."""
        bar.update(report.step - bar.n)
        bar.set_postfix_str(self.lines.bar_postfix(report, evaluated), refresh=False)
        show = bool(evaluated) or self._due(report).line(report)
        if show or report.skipped or report.step % self.parts.recipe.log.every_steps == 0:
            self.run.record({**self._line(report), **report.metrics, **evaluated}, report.seconds)
        if show:
            # A live bar shows the steps without evaluation itself.
            write = self.reporter.say if evaluated or bar.disable else self.run.log
            write(self.lines.line(report, format_metrics(evaluated, self.parts.recipe.objective)))

    def _line(self, report: Report) -> dict[str, Any]:
        """The values of a step for metrics.jsonl, as they are, finite or not."""
        epoch = round(report.step / self.training.feed.plan.epoch_steps, 4)
        line = {"step": report.step, "tokens": report.tokens, "epoch": epoch, "loss": report.loss}
        line |= {"lr": report.lr, "grad_norm": report.grad_norm}
        line |= {f"loss.{name}": value for name, value in report.losses.items() if len(report.losses) > 1}
        return line | ({"skipped": report.skips} if report.skipped else {})

    def _stops_early(self) -> bool:
        """Whether the last evaluation met eval.until, or eval.patience is at its end."""
        if self.counters.met:
            self.reporter.say(f"early stopping: {self.parts.recipe.eval.until} (eval.until)")
            return True
        patience, best = self.parts.recipe.eval.patience, self.parts.best
        if patience is None or self.counters.patience_counter < patience:
            return False
        better = f"no {'lower' if best.lower_is_better else 'higher'} validation {best.name}"
        self.reporter.say(f"early stopping: {better} in {self.counters.patience_counter} evaluations (eval.patience)")
        return True

    def _save(self, report: Report, score: float | None) -> None:
        self.saved = report.step
        counters, settings = report.counters() | self.counters.save(), self.parts.recipe.checkpoint
        if (words := self.parts.word_steps.get(report.step)) is not None:
            counters["words"] = words  # checkpoint.at_words, for which it is kept
        tensors = self._all_tensors(report)
        with self.group.independently():  # only rank 0 writes
            save_checkpoint(self.run, report.step, tensors, counters, score, settings, self.reporter.warn)

    def _tensors(self, at: Progress) -> CheckpointTensors:
        """The current tensors of this process; not copies."""
        parts = self.parts
        return CheckpointTensors(
            parts.model.weights(), self.optimizer.state_tensors(), states.flatten(at.state), parts.objective_tensors()
        )

    def _all_tensors(self, at: Progress) -> CheckpointTensors:
        """Those of all processes, on rank 0."""
        local, gather = self._tensors(at), self.sharding.gather
        model, optimizer = gather(local.model), gather(local.optimizer)
        return CheckpointTensors(model, optimizer, self.group.gather(local.state), gather(local.objective))

    def generating(self, n: int) -> AbstractContextManager[None]:
        """Within it rank 0 may generate `n` texts: with whole weights, if there are any; collective."""
        return self.sharding.whole() if n and self.samples.settings is not None else nullcontext()

    def _sample(self, step: int) -> None:
        """Write a sample after this step, if the model generates text."""

        def write() -> None:
            try:
                text = self.samples.text()
            except RunFault as fault:  # the next training step reports the cause
                self.reporter.warn(f"step {step}: no sample: {fault.message}")
                return
            if text is not None:
                self.run.write_sample(step, text)

        with self.generating(self.parts.recipe.log.samples):
            self.group.on_rank_0(write)


def _with_wait_message(reports: Iterator[Report]) -> Iterator[Report]:
    """The reports; shows a wait message until the first step is done."""
    with show_progress("the first step"):
        first = next(reports, None)
    if first is not None:
        yield first
        yield from reports
