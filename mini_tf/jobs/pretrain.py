"""From a recipe to a run: read the text, build the model, train it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mini_tf.data.datasets import TokenizedData
from mini_tf.jobs.assembling import build, keep, opened, published_as
from mini_tf.jobs.cost.estimating import estimate
from mini_tf.jobs.session import Reporter, RunResult, Session
from mini_tf.jobs.start_messages import report_extension, report_start
from mini_tf.recipe.reading import Resolved
from mini_tf.run.identity import Identity
from mini_tf.run.opening import RunLocation, check_exact, explicit_folder, open_run, start_run
from mini_tf.run.tensorboard import TensorBoardWriter
from mini_tf.trained import initial
from mini_tf.training.machine.device import settle
from mini_tf.training.signals import StopRequest


@dataclass(frozen=True)
class Options:
    """What a command asks besides the recipe."""

    location: RunLocation = field(default_factory=RunLocation)
    extend: int | None = None
    dry_run: bool = False
    command: tuple[str, ...] = ()
    tensorboard: bool = False
    check: Callable[[TokenizedData], None] = lambda text: None
    """Refuses to begin where the run cannot give what is asked of it, once its data are known."""


def pretrain(resolved: Resolved, options: Options, reporter: Reporter) -> RunResult:
    """Recipe and text in, a run folder out. The same call on an unfinished folder continues it."""
    began, recipe = time.monotonic(), resolved.recipe
    if options.dry_run:
        cost = estimate(recipe, reporter)
        all_of = f"for {cost.seeds} seeds" if cost.seeds > 1 else "in all"
        reporter.say(f"estimate: {cost.pace.seconds * 1000:.0f} ms a step, {cost.total / 60:.1f} minutes {all_of}; nothing was kept")
        return RunResult(None, cost.metrics)
    identity, text = identified(resolved, options.location, reporter)
    options.check(text)
    with open_run(options.location, identity, options.command) as run:
        run.export_weights = published_as(recipe)
        if run.status == "finished" and options.extend is None:
            if options.tensorboard:
                run.tensorboard = TensorBoardWriter(run.folder)
                run.tensorboard.write_all()
            run.publish(warn=reporter.warn)  # puts a model.safetensors right that was lost or damaged since
            reporter.say(f"already complete: {run.folder} (step {run.manifest.step}); --extend N trains on, --fresh starts over")
            return RunResult(run.folder, run.manifest.metrics)
        reporter.log, reporter.crash = run.log, run.crash
        run.tensorboard = TensorBoardWriter(run.folder) if options.tensorboard else None
        if options.extend is not None:
            run.extend(options.extend)
            report_extension(recipe, reporter)
        if run.status == "continued":
            reporter.say(f"continuing {run.folder} from step {next(iter(run.checkpoints.steps()), 0)}")
        begun = run.folder if run.checkpoints.steps() else None
        parts = build(recipe, text, settle(recipe.runtime, run.manifest.auto), reporter.detail, begun)
        if begun is None:
            initial.refuse_changed(recipe, identity.hashes)
        check_exact(run, parts.setup.found, recipe.checkpoint.resume == "exact", reporter.warn)
        start_run(run, identity)
        run.record_auto(parts.setup.record)
        keep(parts, run)
        report_start(parts, reporter)
        session = Session(run, parts, reporter, began)
        with StopRequest(reporter.say) as stop:
            return session.finish(session.learn(stop), stop)


def identified(resolved: Resolved, location: RunLocation, reporter: Reporter) -> tuple[Identity, TokenizedData]:
    """Which run a recipe means, by the contents of all that it reads; and its text.

    Where the run that it begins with is gone, the one that stands at `location` says what that was, and with which tokenizer.
    """
    begun = explicit_folder(location)
    begins = initial.contents(resolved.recipe, begun)  # before the text, which may take long
    text = opened(initial.with_own_tokenizer(resolved.recipe, begun), reporter)
    return Identity.of(resolved, text.hashes | begins), text
