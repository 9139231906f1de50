"""A training session on a run folder: reads the reports of training, and evaluates, records, samples and saves when each is due."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mini_tf.jobs.closing_messages import format_metrics, overfitting
from mini_tf.jobs.parts import Parts, training_of
from mini_tf.jobs.samples import Samples
from mini_tf.jobs.step_lines import LOSSES, StepLines, curves
from mini_tf.nn import state as states
from mini_tf.recipe.sections import Checkpoint
from mini_tf.run import divergence
from mini_tf.run.folder import CheckpointTensors, Run
from mini_tf.run.loading import load_model, load_objective
from mini_tf.run.tensors import specs
from mini_tf.system.errors import RunFault
from mini_tf.system.progress import show_progress
from mini_tf.training.counters import Counters
from mini_tf.training.due import Due
from mini_tf.training.loop import DivergedStep, Progress, Report, train
from mini_tf.training.optimizer import build as build_optimizer
from mini_tf.training.signals import Stopped, StopRequest


class Reporter(Protocol):
    """Where the run's conversation goes."""

    log: Any
    crash: Any

    def say(self, line: str) -> None: ...
    def detail(self, line: str) -> None: ...
    def warn(self, line: str) -> None: ...
    def bar(self, total: int, unit: str = "step", initial: int = 0) -> Any: ...


@dataclass(frozen=True)
class RunResult:
    """folder: None after a dry run; metrics by the names that --assert uses; exit_code 0, or 128 + a signal."""

    folder: Path | None
    metrics: dict[str, float | None]
    exit_code: int = 0


class Session:
    """One run under way, from where its folder stands to its end."""

    def __init__(self, run: Run, parts: Parts, reporter: Reporter, began: float) -> None:
        self.run, self.parts, self.reporter = run, parts, reporter
        self.optimizer = build_optimizer(parts.recipe.optimizer, parts.trainable, parts.setup.products)
        self.training = training_of(parts, run.manifest.extensions, self.optimizer)
        self.due = Due(parts.evaluations, self.training.schedule.horizon)
        self.counters = Counters(_began=began)
        self.samples = Samples(parts, reporter.say)
        self.start, self.skips = Progress(), 0
        self.saved = 0  # the step of the newest checkpoint
        self.over = False
        self.lines = StepLines(self.start, self.training.schedule.horizon)
        self.full: tuple[int, dict[str, float]] | None = None  # the last evaluation of the whole held-out text, and its step

    def learn(self, stop: StopRequest) -> int:
        """Train from where the run stands; the step where it ended. All is saved, whatever ended it; `over` tells what did."""
        self._resume()
        if self.over:
            return self.start.step
        report, score = None, None
        with self.reporter.bar(self.training.schedule.horizon.steps or 0, initial=self.start.step) as bar, self._keeping_what_diverged():
            for report in _said(train(self.training, self.start), self.parts.setup.compile):
                self._count(report)
                last = self.training.schedule.finished(report.step, report.seconds)
                score = self._evaluate(report, bar) if last or self.due.evaluation(report) else None
                if score is None:
                    self._record(report, {}, bar)
                self.over = last or (score is not None and self._out_of_patience())
                if self.over or stop or self.due.checkpoint(report) or score == self.counters.best:
                    self._save(report, score)
                if score is not None and not stop:  # a continuation makes up for it
                    self._sample(report.step)
                if self.over or stop:
                    break
            else:
                self.over = True
        if report is None:
            return self.start.step
        self._complete(report, score, bar)
        return report.step

    def _complete(self, report: Report, score: float | None, bar: Any) -> None:
        """Do what was not done with the last step: a stop, or the end of the time, may have come after it was looked at."""
        late = self.over and score is None
        if late:
            score = self._evaluate(report, bar)
        if self.saved != report.step:
            self._save(report, score)
        if late:
            self._sample(report.step)

    def _count(self, report: Report) -> None:
        """Add a step to what is counted, and warn aloud where it is no ordinary one."""
        self.skips = report.skips
        if report.problem is not None:
            count = f"{report.skips_in_a_row} in a row, {report.skips} in all"
            self.reporter.warn(f"step {report.step}: {report.problem.what}; it is left out ({count})")
            return
        if self.counters.jumps(report.loss):
            self.reporter.warn(
                f"step {report.step}: the loss jumps to {report.loss:.3g}; since the last evaluation it was {self.counters.mean:.3g}"
            )
        self.counters.learnt(report.loss)

    @contextmanager
    def _keeping_what_diverged(self) -> Iterator[None]:
        """Within it a step that ends the run is recorded, and kept to be replayed; a disk that fails hides nothing of it."""
        try:
            yield
        except DivergedStep as fault:
            try:
                self.run.record({**self._line(fault.report), "diverged": True})
                facts = divergence.DivergenceInfo.from_step(fault, self.parts.setup)
                kept = self._tensors(fault.at)
                divergence.write(self.run.disk, self.run.folder, facts, kept.model, kept.state, kept.objective)
                self.reporter.say(f"`minitf inspect crash {_quoted(self.run.folder)}` replays the step")
            except Exception as error:  # whatever it is, that the run diverged is what is told
                self.reporter.warn(f"step {fault.report.step} could not be kept for `minitf inspect crash`: {error}")
            raise

    def _resume(self) -> None:
        now = self._tensors(self.start)
        saved = self.run.resume(self.reporter.warn, specs(now.model), specs(now.optimizer), specs(now.objective))
        if saved is None:
            return
        self.parts.load(saved.model, saved.objective)
        self.optimizer.load(saved.optimizer)
        with saved.restoring():
            self.start = Progress.of(saved.counters, states.load(saved.state))
            self.lines = StepLines(self.start, self.training.schedule.horizon)
            self.counters.load(saved.counters)
        self.skips, self.saved = self.start.skips, self.start.step
        if self.counters.steps == 0 and not self.run.has_sample(self.start.step):  # killed between saving and sampling
            self._sample(self.start.step)
        if self.run.manifest.extensions and self.run.manifest.extensions[-1][0] == self.start.step:
            self.counters.worse = 0  # what ended the run before is forgiven by asking for more
        self.over = self._out_of_patience()

    def _measure(self, tokens: int | None, each_batch: Callable[[], None] = lambda: None) -> dict[str, float]:
        return {f"val.{name}": value for name, value in self.parts.evaluate(tokens, each_batch).items() if name != "targets"}

    def _evaluate(self, report: Report, bar: Any) -> float:
        """Measure and record after a step; the validation loss."""
        tokens = self.parts.sample_tokens
        scores = self._measure(tokens)
        if tokens is None:
            self.full = report.step, scores
        self.counters.evaluated(scores["val.loss"])
        written = {f"val.{name}": value for name, value in self.samples.scores().items()}
        self._record(report, scores | written | {"train.loss": self.counters.train_loss}, bar)
        return scores["val.loss"]

    def _record(self, report: Report, evaluated: dict[str, float], bar: Any) -> None:
        """A line of metrics.jsonl where one is due, and some of them aloud."""
        bar.update(report.step - bar.n)
        bar.set_postfix_str(self.lines.on_bar(report, evaluated), refresh=False)
        aloud = bool(evaluated) or self.due.line(report)
        if aloud or report.skipped or report.step % self.parts.recipe.log.every_steps == 0:
            self.run.record({**self._line(report), **report.metrics, **evaluated}, report.seconds)
        if aloud:
            # A live bar shows the ordinary steps itself.
            tell = self.reporter.say if evaluated or bar.disable else self.run.log
            tell(self.lines.line(report, format_metrics(evaluated, self.parts.recipe.objective)))

    def _line(self, report: Report) -> dict[str, Any]:
        """What metrics.jsonl has of a step, as it is: nothing is left out of a mean, or put in place of what is not finite."""
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
        """Whether evaluation has not improved for as long as the recipe bears."""
        patience = self.parts.recipe.eval.patience
        if patience is None or self.counters.worse < patience:
            return False
        self.reporter.say(f"stopping early: no better loss in {self.counters.worse} evaluations (eval.patience)")
        return True

    def _save(self, report: Report, score: float | None) -> None:
        self.saved = report.step
        keep = self.parts.recipe.checkpoint
        save(self.run, report.step, self._tensors(report), report.counters() | self.counters.save(), score, keep, self.reporter.warn)

    def _tensors(self, at: Progress) -> CheckpointTensors:
        """All tensors of the run as they stand; not copies."""
        parts = self.parts
        return CheckpointTensors(parts.model.weights(), self.optimizer.state_tensors(), states.save(at.state), parts.own_tensors())

    def _sample(self, step: int) -> None:
        """Let the model write after this step, if it can."""
        try:
            text = self.samples.text()
        except RunFault as fault:  # the next step will tell what is wrong
            self.reporter.warn(f"step {step}: no sample: {fault.message}")
            return
        if text is not None:
            self.run.write_sample(step, text)

    def finish(self, step: int, stop: StopRequest) -> RunResult:
        """Close the run: measured over the whole held-out text, drawn, and told in a few plain words."""
        run = self.run
        if stop and not self.over:
            return self._stopped(f"stopped at step {step}, saved", stop)
        try:
            measured = self._final_metrics(stop)
        except Stopped:
            return self._stopped(f"stopped at step {step}, saved, before the last evaluation", stop)
        metrics = measured | {"train.loss": self.counters.train_loss, "minutes": self.counters.wall() / 60}
        with show_progress("drawing the losses"):
            run.plot_losses()
        for line in self._closing_words(step, metrics):
            self.reporter.say(line)
        run.finish("done", metrics=metrics)  # nothing slow behind it: killed there, the run is done, and --extend extends it once more
        return RunResult(run.folder, {**metrics})

    def _stopped(self, how: str, stop: StopRequest) -> RunResult:
        self.reporter.say(f"{how}; run the same command to continue")
        self.run.finish("stopped", stop.exit_code, error=f"stopped by {stop.signal.name if stop.signal else 'a signal'}")
        return RunResult(self.run.folder, {}, stop.exit_code)

    def _final_metrics(self, stop: StopRequest) -> dict[str, float]:
        """Figures of model.safetensors over the whole held-out text; Stopped where that is asked for meanwhile, for it may take long."""
        model = self.run.manifest.model
        measured = self.full[1] if self.full is not None and model is not None and model["step"] == self.full[0] else None
        if measured is None:
            merged = self.run.export_weights is not None  # then model.safetensors is another model's than the one that learnt
            own = load_objective(self.run.folder, model["step"] if model else "best", specs(self.parts.own_tensors()))
            self.parts.load(load_model(self.run.folder, model["step"] if model and merged else None), own)
            measured = self._measure(None, stop.check)
        return measured | {f"val.{name}": value for name, value in self.samples.scores(whole=True, each_chunk=stop.check).items()}

    def _closing_words(self, step: int, metrics: dict[str, float]) -> Iterator[str]:
        model = self.run.manifest.model
        best = f" (the best checkpoint, step {model['step']} of {step})" if model and model["step"] != step else ""
        yield f"done: {format_metrics(metrics, self.parts.recipe.objective)}, on all {self.parts.held_out_tokens:,} validation tokens{best}"
        yield from curves({name: self.run.curve(key) for name, key in LOSSES.items()})
        if self.skips:
            yield f"{self.skips} of {step} steps were left out: their loss or gradient was not finite"
        epochs = step / self.training.feed.plan.epoch_steps
        yield overfitting(epochs, self.counters.train_loss, self.counters.val_loss, self.parts.recipe.objective)
        sample = self.run.last_sample()
        if copied := self.samples.copied(sample):
            yield copied
        folder, pipeline = _quoted(self.run.folder), self.samples.settings
        use = pipeline.COMMAND if pipeline is not None and (sample or pipeline.COMMAND == "predict") else None
        yield f"next: minitf evaluate {folder}" + (f"; minitf {use} {folder}" if use else "")


def _said(reports: Iterator[Report], compiles: bool) -> Iterator[Report]:
    """The reports, while a person is told that the first step may take long."""
    with show_progress("compiling the model, then the first step" if compiles else "the first step"):
        first = next(reports, None)
    if first is not None:
        yield first
        yield from reports


def save(
    run: Run,
    step: int,
    tensors: CheckpointTensors,
    counters: dict[str, Any],
    score: float | None,
    keep: Checkpoint,
    warn: Callable[[str], None] = lambda line: None,
) -> None:
    """Keep a checkpoint and the best model, and remove the checkpoints that are not to be kept."""
    run.save(step, tensors, counters, score)
    run.publish(warn=warn)
    run.rotate(keep.keep_last, keep.keep_best)


def _quoted(path: Path) -> str:
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
