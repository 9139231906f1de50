"""A training session on a run folder: reads the reports of training, and evaluates, records, samples and saves when each is due."""

import math
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from mini_tf.evaluate import evaluate, pack
from mini_tf.generation.copying import copied_share
from mini_tf.generation.writing import write
from mini_tf.nn import state as states
from mini_tf.nn.model import Model
from mini_tf.objectives import Objective
from mini_tf.recipe.sections import Recipe
from mini_tf.run.folder import Run, Tensors
from mini_tf.run.loading import load_model
from mini_tf.run.tensors import specs
from mini_tf.seeds import seed_of
from mini_tf.text.packing import Packing
from mini_tf.text.token_store import Text
from mini_tf.training.device import Setup
from mini_tf.training.feed import Feed
from mini_tf.training.loop import Progress, Report, Training, train
from mini_tf.training.optimizer import build as build_optimizer
from mini_tf.training.plan import Plan
from mini_tf.training.schedule import Course, horizon_of
from mini_tf.training.signals import StopRequest

EVALUATIONS = 10
"""Evaluations of a run where the recipe leaves it to us."""
COPY_CHECK_TOKENS = 10_000_000
"""Of the training text, that a sample is compared with at most."""
SPOKEN = ("val.loss", "val.bits_per_byte", "val.accuracy")
"""Figures that are told in words; the rest stands in metrics.jsonl."""


class Voice(Protocol):
    """Where the run's conversation goes."""

    log: Any

    def say(self, line: str) -> None: ...
    def detail(self, line: str) -> None: ...
    def warn(self, line: str) -> None: ...
    def bar(self, total: int, unit: str = "step", initial: int = 0) -> Any: ...


@dataclass(frozen=True)
class Outcome:
    """folder: None after a dry run; metrics by the names that --assert uses; exit_code 0, or 128 + a signal."""

    folder: Path | None
    metrics: dict[str, float | None]
    exit_code: int = 0


@dataclass(frozen=True)
class Parts:
    """All that is made from the recipe and the text before the first step."""

    recipe: Recipe
    text: Text
    objective: Objective
    setup: Setup
    model: Model
    task: nn.Module

    @cached_property
    def train(self) -> Packing:
        return pack(self.recipe, self.text.train, self.text.tokenizer, self.objective)

    @cached_property
    def val(self) -> Packing:
        return pack(self.recipe, self.text.val, self.text.tokenizer, self.objective)

    @property
    def course(self) -> Course:
        train = self.recipe.train
        return Course(self.recipe.schedule, self.recipe.optimizer.lr, horizon_of(train, self.train.n_rows, train.context))

    def evaluate(self, tokens: int | None = None) -> dict[str, float]:
        """The held-out figures, as `val.loss` and so on."""
        scores = evaluate(self.task, self.objective, self.val, self.setup, max(self.recipe.train.batch_size, 8), tokens)
        return {f"val.{name}": value for name, value in scores.items() if name != "targets"}


class Session:
    """One run under way, from where its folder stands to its end."""

    def __init__(self, run: Run, parts: Parts, voice: Voice, micro: int, began: float) -> None:
        self.run, self.parts, self.voice, self.began = run, parts, voice, began
        recipe = parts.recipe
        self.optimizer = build_optimizer(recipe.optimizer, parts.model)
        plan = Plan(parts.train.n_rows, recipe.train.batch_size, recipe.train.seed, recipe.train.stream)
        feed = Feed(plan, parts.train, parts.objective.prepare, micro)
        course = parts.course
        for steps in run.manifest.extensions:
            course = course.extended(steps)
        self.training = Training(parts.task, feed, self.optimizer, course, parts.setup, recipe.train.seed, recipe.optimizer.clip)
        self.earlier, self.best, self.worse = 0.0, math.inf, 0
        self.sampled = ""

    def learn(self, stop: StopRequest) -> Report | None:
        """Train from where the run stands; the last report, or None where nothing was left to do. Saved whatever ended it."""
        start = self._resume()
        self.due = _Due(self.parts.recipe, self.training.course)
        report, saved = None, start.step
        total = self.training.course.horizon.steps or 0
        with self.voice.bar(total, initial=start.step) as bar:
            self._first = start
            for report in train(self.training, start):
                last = self.training.course.finished(report.step, report.seconds)
                evaluated = self._evaluate(report) if last or self.due.evaluation(report) else {}
                self._record(report, evaluated, bar)
                tired = bool(evaluated) and self._tired(evaluated["val.loss"])
                if last or tired or stop or self.due.checkpoint(report):
                    self._save(report, evaluated.get("val.loss"))
                    saved = report.step
                if tired or stop:
                    break
        if report is not None and saved != report.step:  # the clock ran out while the last step was looked at
            evaluated = self._evaluate(report)
            self._save(report, evaluated["val.loss"])
        return report

    def _resume(self) -> Progress:
        saved = self.run.resume(self.voice.warn, specs(self.parts.model.weights()))
        if saved is None:
            return Progress()
        self.parts.model.load_weights(saved.model)
        self.optimizer.load(saved.optimizer)
        self.earlier = saved.counters["wall_seconds"]
        self.best, self.worse = float.fromhex(saved.counters["best"]), saved.counters["worse"]
        self.voice.say(f"continuing {self.run.folder} from step {saved.step}")
        return Progress.of(saved.counters, states.load(saved.state))

    def _evaluate(self, report: Report) -> dict[str, float]:
        scores = self.parts.evaluate(self.parts.recipe.eval.tokens)
        self.sampled = self._sample(report.step) or self.sampled
        return scores

    def _record(self, report: Report, evaluated: dict[str, float], bar: Any) -> None:
        bar.update(1)
        bar.set_postfix(loss=f"{report.loss:.3f}", refresh=False)
        if not evaluated and report.step % self.parts.recipe.log.every_steps:
            return
        line = {
            "step": report.step,
            "tokens": report.tokens,
            "epoch": round(self.training.feed.plan.epochs(report.step), 4),
            "loss": report.loss,
            "lr": report.lr,
            "grad_norm": report.grad_norm,
        }
        line |= {f"loss.{name}": value for name, value in report.losses.items() if len(report.losses) > 1}
        self.run.record({**line, **report.metrics, **evaluated}, report.seconds)
        if evaluated or self.due.line(report):
            held_out = "".join(f", {name} {value:.4f}" for name, value in evaluated.items() if name in SPOKEN)
            self._tell(f"step {report.step}: loss {report.loss:.4f}{held_out}{self._time_left(report)}", bool(evaluated), bar)

    def _tell(self, line: str, important: bool, bar: Any) -> None:
        # A live bar shows the ordinary steps itself.
        (self.voice.say if important or bar.disable else self.run.log)(line)

    def _time_left(self, report: Report) -> str:
        steps, done = self.training.course.horizon.steps, report.step - self._first.step
        if done < 10 or steps is None or report.step >= steps:
            return ""
        left = (report.seconds - self._first.seconds) / done * (steps - report.step)
        return f", {_duration(left)} left"

    def _tired(self, loss: float) -> bool:
        """Whether evaluation has not improved for as long as the recipe bears."""
        self.worse = 0 if loss < self.best else self.worse + 1
        self.best = min(self.best, loss)
        patience = self.parts.recipe.eval.patience
        if patience is None or self.worse < patience:
            return False
        self.voice.say(f"stopping early: no better loss in {self.worse} evaluations (eval.patience)")
        return True

    def _save(self, report: Report, score: float | None) -> None:
        counters = report.counters() | {
            "wall_seconds": self.earlier + time.monotonic() - self.began,
            "best": self.best.hex(),
            "worse": self.worse,
        }
        keep = self.parts.recipe.checkpoint
        tensors = Tensors(self.parts.model.weights(), self.optimizer.state_tensors(), states.save(report.state))
        self.run.save(report.step, tensors, counters, score)
        self.run.publish()
        self.run.rotate(keep.keep_last, keep.keep_best)

    def _sample(self, step: int) -> str:
        """Texts that a decoder writes after this step; an encoder does not write."""
        recipe = self.parts.recipe
        if recipe.model.READS != "left" or not recipe.log.samples:
            return ""
        texts = [
            write(self.parts.model, self.parts.text.tokenizer, recipe, seed_of("sample", i), over_borders=True)
            for i in range(recipe.log.samples)
        ]
        self.run.sample(step, "\n\n".join(recipe.generate.prompt + text for text in texts) + "\n")
        return texts[0]

    def finish(self, report: Report | None, stop: StopRequest) -> Outcome:
        """Close the run: measured once more where only a part was, drawn, and told in a few plain words."""
        run = self.run
        minutes = (self.earlier + time.monotonic() - self.began) / 60
        if stop:
            step = report.step if report else 0
            self.voice.say(f"stopped at step {step}, saved; run the same command to continue")
            run.finish("stopped", stop.exit_code, error=f"stopped by {stop.signal.name if stop.signal else 'a signal'}")
            return Outcome(run.folder, {}, stop.exit_code)
        metrics = self._final_metrics(report) | {"minutes": minutes}
        if report is not None:
            metrics["train.loss"] = report.loss
        run.draw()
        run.finish("done", metrics=metrics)
        for line in self._closing_words(report, metrics):
            self.voice.say(line)
        return Outcome(run.folder, {**metrics})

    def _final_metrics(self, report: Report | None) -> dict[str, float]:
        """Figures of model.safetensors over the whole held-out text."""
        model = self.run.manifest.model
        if model is not None and (report is None or model["step"] != report.step):
            self.parts.model.load_weights(load_model(self.run.folder))
        return self.parts.evaluate()

    def _closing_words(self, report: Report | None, metrics: dict[str, float]) -> Iterator[str]:
        model = self.run.manifest.model
        step = f" (the best checkpoint, step {model['step']})" if model else ""
        yield "held out: " + ", ".join(f"{name[4:]} {metrics[name]:.4g}" for name in SPOKEN if name in metrics) + step
        if report is not None:
            epochs = self.training.feed.plan.epochs(report.step)
            gap = metrics["val.loss"] - report.loss
            verdict = "; it knows its own text much better: more text or fewer steps would help" if gap > 0.25 * metrics["val.loss"] else ""
            yield f"the text was read {epochs:.2g} times; the held-out loss is {gap:+.2f} from the training loss{verdict}"
        if self.sampled:
            share = copied_share(self.sampled, self._training_documents())
            yield f"of the last sample {share:.0%} stands in the training text word for word (runs of 8 words)"
        folder = self.run.folder
        yield f"next: minitf evaluate {_quoted(folder)}" + (f"; minitf generate {_quoted(folder)}" if self.sampled else "")

    def _training_documents(self) -> Iterator[str]:
        store, read = self.parts.text.train, 0
        for n in range(store.n_documents):
            document = self.parts.text.tokenizer.decode(store.document(n)[: COPY_CHECK_TOKENS - read])
            yield document
            read += len(store.document(n))
            if read >= COPY_CHECK_TOKENS:
                return


class _Due:
    """When evaluation, saving and a line in the log are due: by steps, or where the clock decides by shares of the time."""

    def __init__(self, recipe: Recipe, course: Course) -> None:
        self.recipe, self.horizon = recipe, course.horizon
        self._passed: dict[str, int] = {}

    def evaluation(self, report: Report) -> bool:
        return self._at("evaluation", report, self.recipe.eval.every_steps)

    def checkpoint(self, report: Report) -> bool:
        every = self.recipe.checkpoint.every_steps
        return self._at("checkpoint", report, self.recipe.eval.every_steps if every == "auto" else every)

    def line(self, report: Report) -> bool:
        """Some thirty lines a run."""
        return report.step == 10 or self._at("line", report, "auto", parts=3 * EVALUATIONS)

    def _at(self, what: str, report: Report, every: int | str, parts: int = EVALUATIONS) -> bool:
        if isinstance(every, int):
            return report.step % every == 0
        if self.horizon.steps is not None:
            return report.step % max(1, math.ceil(self.horizon.steps / parts)) == 0
        part = int(report.seconds / (self.horizon.seconds or 1) * parts)
        passed = part > self._passed.get(what, 0)
        self._passed[what] = max(part, self._passed.get(what, 0))
        return passed


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _quoted(path: Path) -> str:
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
