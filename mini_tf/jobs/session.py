"""The training session of a run: runs the training loop, and evaluates, logs, samples and saves when due."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mini_tf.jobs.baselines import Baselines, baselines_of
from mini_tf.jobs.closing_messages import format_metrics, next_commands, overfitting, quoted
from mini_tf.jobs.parts import Parts, training_of
from mini_tf.jobs.samples import Samples
from mini_tf.jobs.step_lines import LOSSES, StepLines, curves
from mini_tf.nn import state as states
from mini_tf.pipelines import pipeline_of
from mini_tf.recipe.sections import Checkpoint
from mini_tf.run import divergence
from mini_tf.run.folder import CheckpointTensors, Run
from mini_tf.run.loading import load_model, load_objective
from mini_tf.run.tensors import specs
from mini_tf.system.errors import RunFault
from mini_tf.system.progress import show_progress
from mini_tf.training.counters import Counters
from mini_tf.training.due import Due
from mini_tf.training.evaluation import MetricAccumulator
from mini_tf.training.loop import DivergedStep, Progress, Report, train
from mini_tf.training.optimizer import build as build_optimizer
from mini_tf.training.signals import Stopped, StopRequest


class Reporter(Protocol):
    """Prints and logs the messages of a run."""

    log: Any
    crash: Any

    def say(self, line: str) -> None: ...
    def detail(self, line: str) -> None: ...
    def warn(self, line: str) -> None: ...
    def bar(self, total: int, unit: str = "step", initial: int = 0) -> Any: ...


@dataclass(frozen=True)
class RunResult:
    """folder: None after a dry run. metrics: by the names that --assert uses. exit_code: 0, or 128 + signal number."""

    folder: Path | None
    metrics: dict[str, float | None]
    exit_code: int = 0


class Session:
    """The training of one run, from its newest checkpoint to its end."""

    def __init__(self, run: Run, parts: Parts, reporter: Reporter, started: float) -> None:
        self.run, self.parts, self.reporter = run, parts, reporter
        self.optimizer = build_optimizer(parts.recipe.optimizer, parts.trainable, parts.setup.compute_dtype)
        self.training = training_of(parts, run.manifest.extensions, self.optimizer)
        self.due = Due(parts.evaluations, self.training.schedule.horizon)
        self.counters = Counters(_started=started)
        self.samples = Samples(parts, reporter.say)
        self.start, self.skips = Progress(), 0
        self.saved = 0  # step of the newest checkpoint
        self.finished = False  # no further step is to be trained
        self.lines = StepLines(self.start, self.training.schedule.horizon)
        self.full: tuple[int, dict[str, float]] | None = None  # step and metrics of the last evaluation on all validation data

    def train(self, stop: StopRequest) -> int:
        """Train to the end of the run or until `stop`; returns the last step, which is saved. Sets `finished`."""
        self._resume()
        if self.finished:
            return self.start.step
        report, score = None, None
        with self.reporter.bar(self.training.schedule.horizon.steps or 0, initial=self.start.step) as bar, self._dump_divergence():
            for report in _with_wait_message(train(self.training, self.start), self.parts.setup.compile):
                self._count(report)
                last = self.training.schedule.finished(report.step, report.seconds)
                score = self._evaluate(report, bar) if last or self.due.evaluation(report) else None
                if score is None:
                    self._record(report, {}, bar)
                self.finished = last or (score is not None and self._out_of_patience())
                if self.finished or stop or self.due.checkpoint(report) or score == self.counters.best:
                    self._save(report, score)
                if score is not None and not stop:  # after a stop, the continuation samples
                    self._sample(report.step)
                if self.finished or stop:
                    break
            else:
                self.finished = True
        if report is None:
            return self.start.step
        self._complete_last_step(report, score, bar)
        return report.step

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
            self.reporter.warn(
                f"step {report.step}: the loss jumps to {report.loss:.3g}; mean since the last evaluation: {self.counters.mean_loss:.3g}"
            )
        self.counters.add_step(report.loss)

    @contextmanager
    def _dump_divergence(self) -> Iterator[None]:
        """On divergence, log the step and save it for `inspect crash`; a failing disk does not hide the error."""
        try:
            yield
        except DivergedStep as fault:
            try:
                self.run.record({**self._line(fault.report), "diverged": True})
                facts = divergence.DivergenceInfo.from_step(fault, self.parts.setup)
                tensors = self._tensors(fault.at)
                divergence.write(self.run.disk, self.run.folder, facts, tensors.model, tensors.state, tensors.objective)
                self.reporter.say(f"`minitf inspect crash {quoted(self.run.folder)}` replays the step")
            except Exception as error:  # the divergence is the error to report
                self.reporter.warn(f"step {fault.report.step} could not be saved for `minitf inspect crash`: {error}")
            raise

    def _resume(self) -> None:
        now = self._tensors(self.start)
        saved = self.run.resume(self.reporter.warn, specs(now.model), specs(now.optimizer), specs(now.objective))
        if saved is None:
            return
        self.parts.load(saved.model, saved.objective)
        self.optimizer.load(saved.optimizer)
        with saved.restoring():
            self.start = Progress.of(saved.counters, states.unflatten(saved.state))
            self.lines = StepLines(self.start, self.training.schedule.horizon)
            self.counters.load(saved.counters)
        self.skips, self.saved = self.start.skips, self.start.step
        if self.counters.steps == 0 and not self.run.has_sample(self.start.step):  # killed between saving and sampling
            self._sample(self.start.step)
        if self.run.manifest.extensions and self.run.manifest.extensions[-1][0] == self.start.step:
            self.counters.patience_counter = 0  # --extend resets eval.patience
        self.finished = self._out_of_patience()

    def _measure(
        self, tokens: int | None, each_batch: Callable[[], None] = lambda: None, accumulator: MetricAccumulator | None = None
    ) -> dict[str, float]:
        metrics = self.parts.evaluate(tokens, each_batch, accumulator)
        return {f"val.{name}": value for name, value in metrics.items() if name != "targets"}

    def _evaluate(self, report: Report, bar: Any) -> float:
        """Evaluate and log after a step; returns the score (`BestMetric`)."""
        tokens = self.parts.sample_tokens
        metrics = self._measure(tokens)
        if tokens is None:
            self.full = report.step, metrics
        measured = metrics | {f"val.{name}": value for name, value in self.samples.scores().items()}
        score = self.parts.best.score(measured)
        self.counters.add_evaluation(metrics["val.loss"], score)
        self._record(report, measured | {"train.loss": self.counters.train_loss}, bar)
        return score

    def _record(self, report: Report, evaluated: dict[str, float], bar: Any) -> None:
        """Update the progress bar, and write metrics.jsonl and the progress line if due."""
        bar.update(report.step - bar.n)
        bar.set_postfix_str(self.lines.bar_postfix(report, evaluated), refresh=False)
        show = bool(evaluated) or self.due.line(report)
        if show or report.skipped or report.step % self.parts.recipe.log.every_steps == 0:
            self.run.record({**self._line(report), **report.metrics, **evaluated}, report.seconds)
        if show:
            # A live bar shows the steps without evaluation itself.
            write = self.reporter.say if evaluated or bar.disable else self.run.log
            write(self.lines.line(report, format_metrics(evaluated, self.parts.recipe.objective)))

    def _line(self, report: Report) -> dict[str, Any]:
        """The values of a step for metrics.jsonl, as they are, finite or not."""
        line = {
            "step": report.step,
            "tokens": report.tokens,
            "epoch": round(report.step / self.training.feed.plan.epoch_steps, 4),
            "loss": report.loss,
            "lr": report.lr,
            "grad_norm": report.grad_norm,
        }
        line |= {f"loss.{name}": value for name, value in report.losses.items() if len(report.losses) > 1}
        return line | ({"skipped": report.skips} if report.skipped else {})

    def _out_of_patience(self) -> bool:
        """Whether the metric of eval.best has not improved for eval.patience evaluations."""
        patience, best = self.parts.recipe.eval.patience, self.parts.best
        if patience is None or self.counters.patience_counter < patience:
            return False
        better = f"no {'lower' if best.lower_is_better else 'higher'} validation {best.name}"
        self.reporter.say(f"early stopping: {better} in {self.counters.patience_counter} evaluations (eval.patience)")
        return True

    def _save(self, report: Report, score: float | None) -> None:
        self.saved = report.step
        counters, settings = report.counters() | self.counters.save(), self.parts.recipe.checkpoint
        save_checkpoint(self.run, report.step, self._tensors(report), counters, score, settings, self.reporter.warn)

    def _tensors(self, at: Progress) -> CheckpointTensors:
        """The current tensors of the run; not copies."""
        parts = self.parts
        return CheckpointTensors(parts.model.weights(), self.optimizer.state_tensors(), states.flatten(at.state), parts.objective_tensors())

    def _sample(self, step: int) -> None:
        """Write a sample after this step, if the model generates text."""
        try:
            text = self.samples.text()
        except RunFault as fault:  # the next training step reports the cause
            self.reporter.warn(f"step {step}: no sample: {fault.message}")
            return
        if text is not None:
            self.run.write_sample(step, text)

    def finish(self, step: int, stop: StopRequest) -> RunResult:
        """Finish the run: final evaluation, plots, closing messages."""
        run, fitter = self.run, pipeline_of(self.parts).decision_fitter()
        if stop and not self.finished:
            return self._stopped(f"stopped at step {step}, saved", stop)
        try:
            final = self._final_metrics(stop, fitter)
            minutes, baselines = self.counters.wall() / 60, baselines_of(self.parts, stop.check)
        except Stopped:
            return self._stopped(f"stopped at step {step}, saved, before the last evaluation", stop)
        metrics = final | {"train.loss": self.counters.train_loss, "minutes": minutes} | baselines.metrics(final)
        if (name := baselines.name(final)) is not None:
            run.update(baseline=name)
        with show_progress("plotting the losses"):
            run.plot_losses()
        if fitter is not None:
            run.update(model=run.manifest.model_with(fitter.decision))
        for line in self._closing_lines(step, metrics, baselines, [] if fitter is None else fitter.lines):
            self.reporter.say(line)
        run.finish("done", metrics=metrics)  # last and fast: if killed after it, the run is done and another --extend would add to it
        return RunResult(run.folder, {**metrics})

    def _stopped(self, state: str, stop: StopRequest) -> RunResult:
        self.reporter.say(f"{state}; run the same command to continue")
        self.run.finish("stopped", stop.exit_code, error=f"stopped by {stop.signal.name if stop.signal else 'a signal'}")
        return RunResult(self.run.folder, {}, stop.exit_code)

    def _final_metrics(self, stop: StopRequest, fitter: MetricAccumulator | None) -> dict[str, float]:
        """Metrics of model.safetensors on all validation data; raises Stopped on a signal, since it may take long."""
        model = self.run.manifest.model
        metrics = self.full[1] if self.full is not None and model is not None and model["step"] == self.full[0] else None
        if metrics is None or fitter is not None:
            merged = self.run.export_weights is not None  # model.safetensors then has other tensors than the trained model
            own = load_objective(self.run.folder, model["step"] if model else "best", specs(self.parts.objective_tensors()))
            self.parts.load(load_model(self.run.folder, model["step"] if model and merged else None), own)
            metrics = self._measure(None, stop.check, fitter)
        return metrics | {f"val.{name}": value for name, value in self.samples.scores(full=True, each_chunk=stop.check).items()}

    def _closing_lines(self, step: int, metrics: dict[str, float], baselines: Baselines, fitted: Sequence[str]) -> Iterator[str]:
        model = self.run.manifest.model
        by = "" if self.parts.best.name == "loss" else f" by {self.parts.best.name}"
        best = f" (the best checkpoint{by}, step {model['step']} of {step})" if model and model["step"] != step else ""
        summary = format_metrics(metrics, self.parts.recipe.objective)
        yield f"done: {summary}, on all {self.parts.validation_tokens:,} validation tokens{best}"
        yield from baselines.lines(metrics)
        yield from fitted
        yield from curves({name: self.run.curve(key) for name, key in LOSSES.items()})
        if self.skips:
            yield f"{self.skips} of {step} steps were skipped: their loss or gradient was not finite"
        epochs = step / self.training.feed.plan.epoch_steps
        yield overfitting(epochs, self.counters.train_loss, self.counters.val_loss, self.parts.recipe.objective)
        sample = self.run.last_sample()
        if copied := self.samples.copied(sample):
            yield copied
        pipeline = self.samples.settings
        command = pipeline.COMMAND if pipeline is not None and (sample or pipeline.COMMAND == "predict") else None
        yield next_commands(self.run.folder, command)


def _with_wait_message(reports: Iterator[Report], compiles: bool) -> Iterator[Report]:
    """The reports; shows a wait message until the first step is done."""
    with show_progress("compiling the model, then the first step" if compiles else "the first step"):
        first = next(reports, None)
    if first is not None:
        yield first
        yield from reports


def save_checkpoint(
    run: Run,
    step: int,
    tensors: CheckpointTensors,
    counters: dict[str, Any],
    score: float | None,
    settings: Checkpoint,
    warn: Callable[[str], None] = lambda line: None,
) -> None:
    """Save a checkpoint, update model.safetensors, and delete the checkpoints that `settings` does not keep."""
    run.save(step, tensors, counters, score)
    run.publish(warn=warn)
    run.rotate(settings.keep_last, settings.keep_best)
