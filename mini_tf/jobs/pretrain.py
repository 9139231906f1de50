"""Training from a recipe: read the data, build the model, train, write the run folder."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mini_tf.data.datasets import TokenizedData
from mini_tf.jobs.assembling import build, load_data, merge_function, usable_best_metric, write_model_files
from mini_tf.jobs.cost.estimating import estimate
from mini_tf.jobs.session import Reporter, RunResult, Session
from mini_tf.jobs.start_messages import report_extension, report_start
from mini_tf.recipe.reading import Resolved
from mini_tf.run.identity import Identity
from mini_tf.run.opening import RunLocation, check_exact, explicit_folder, open_run, start_run
from mini_tf.run.tensorboard import TensorBoardWriter
from mini_tf.trained import initial
from mini_tf.training.machine.device import resolve_setup
from mini_tf.training.signals import StopRequest


@dataclass(frozen=True)
class Options:
    """Options of a training command beside the recipe."""

    location: RunLocation = field(default_factory=RunLocation)
    extend: int | None = None
    dry_run: bool = False
    command: tuple[str, ...] = ()
    tensorboard: bool = False
    check: Callable[[TokenizedData], None] = lambda data: None
    """Raises before training if the data do not fit the command."""


def pretrain(resolved: Resolved, options: Options, reporter: Reporter) -> RunResult:
    """Train the model of a recipe in a run folder. The same call on an unfinished run continues it."""
    started, recipe = time.monotonic(), resolved.recipe
    if options.dry_run:
        cost = estimate(recipe, reporter)
        runs = f" for {cost.run_set}" if cost.run_set else ""
        reporter.say(
            f"estimate: {cost.timing.seconds * 1000:.0f} ms per step, {cost.total / 60:.1f} minutes in total{runs}; nothing was saved"
        )
        return RunResult(None, cost.metrics)
    identity, data = identify(resolved, options.location, reporter)
    options.check(data)
    best = usable_best_metric(recipe, data.labels)
    with open_run(options.location, identity, options.command) as run:
        run.export_weights, run.best_metric = merge_function(recipe), best
        if run.status == "finished" and options.extend is None:
            if options.tensorboard:
                run.tensorboard = TensorBoardWriter(run.folder)
                run.tensorboard.write_all()
            run.publish(warn=reporter.warn)  # restores a model.safetensors that was lost or damaged since
            reporter.say(f"already complete: {run.folder} (step {run.manifest.step}); --extend N trains N more steps, --fresh starts over")
            return RunResult(run.folder, run.manifest.metrics)
        reporter.log, reporter.crash = run.log, run.crash
        run.tensorboard = TensorBoardWriter(run.folder) if options.tensorboard else None
        if options.extend is not None:
            run.extend(options.extend)
            report_extension(recipe, reporter)
        if run.status == "continued":
            reporter.say(f"continuing {run.folder} from step {next(iter(run.checkpoints.steps()), 0)}")
        resumed = run.folder if run.checkpoints.steps() else None
        parts = build(recipe, data, resolve_setup(recipe.runtime, run.manifest.auto), reporter.detail, resumed)
        if resumed is None:
            initial.refuse_changed(recipe, identity.hashes)
        check_exact(run, parts.setup.settings, recipe.checkpoint.resume == "exact", reporter.warn)
        start_run(run, identity)
        run.record_auto(parts.setup.record)
        if run.manifest.flops_per_step is None:
            n_examples = data.train.n_documents if data.train.streamed is None else None  # which nothing has counted
            run.update(flops_per_step=parts.flops_per_step, train_examples=n_examples)
        write_model_files(run, recipe, parts.model, data, parts.fully_trainable)
        report_start(parts, reporter)
        session = Session(run, parts, reporter, started)
        with StopRequest(reporter.say) as stop:
            return session.finish(session.train(stop), stop)


def identify(resolved: Resolved, location: RunLocation, reporter: Reporter) -> tuple[Identity, TokenizedData]:
    """The identity of a recipe's run, by the contents of all files that it reads, and its tokenized data.

    If the run of model.init_from no longer exists, its hash and tokenizers are read from the run at `location`.
    """
    folder = explicit_folder(location)
    init = initial.init_hash(resolved.recipe, folder)  # before the data, which may take long to read
    data = load_data(initial.with_own_tokenizer(resolved.recipe, folder), reporter)
    return Identity.of(resolved, data.hashes | init), data
