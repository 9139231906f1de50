"""Training from a recipe: read the data, build the model, train, write the run folder."""

import time

from mini_tf.jobs import initial
from mini_tf.jobs.assembling import Options, build, identify, merge_function, usable_best_metric
from mini_tf.jobs.finishing import finish
from mini_tf.jobs.messages import Reporter, report_extension, report_start
from mini_tf.jobs.session import RunResult, Session
from mini_tf.recipe.reading import Resolved
from mini_tf.run.following import follow
from mini_tf.run.location import check_exact, open_run, restore, start_run
from mini_tf.run.metric_files import TensorBoardWriter
from mini_tf.trained.opening import write_model_files
from mini_tf.training.machine.device import resolve_setup
from mini_tf.training.signals import StopRequest


def pretrain(resolved: Resolved, options: Options, reporter: Reporter) -> RunResult:
    """Train the model of a recipe in a run folder. The same call on an unfinished run continues it.

    All processes have the metrics and the exit code of rank 0.
    """
    started, recipe, group = time.monotonic(), resolved.recipe, options.group
    identity, data = identify(resolved, options, reporter)
    options.check(data)
    best = usable_best_metric(recipe, data.labels)
    with follow(group, lambda: open_run(options.location, identity, options.command)) as run:
        run.export_weights, run.best_metric = merge_function(recipe), best
        if run.status == "finished" and options.extend is None:
            group.on_rank_0(lambda: restore(run, identity, options.tensorboard, reporter.warn))
            more = "--extend N trains N more steps, --fresh starts a new run"
            reporter.say(f"already complete: {run.folder} (step {run.manifest.step}); {more}")
            return RunResult(run.folder, run.manifest.metrics)
        reporter.log, reporter.crash = run.log, run.crash
        run.tensorboard = TensorBoardWriter(run.folder) if options.tensorboard else None
        if options.extend is not None:
            run.extend(options.extend)
            report_extension(recipe, reporter)
        if run.status == "continued":
            reporter.say(f"continuing {run.folder} from step {next(iter(run.checkpoints.steps()), 0)}")
        resumed = run.folder if group.on_rank_0(lambda: bool(run.checkpoints.steps())) else None  # as rank 0 sees it
        parts = build(recipe, data, resolve_setup(recipe.runtime, run.manifest.auto), reporter.detail, resumed, group)
        if resumed is None:
            initial.refuse_changed(recipe, identity.hashes)
        settings = parts.setup.settings | parts.sharding.numerics(recipe.runtime)
        exact = recipe.checkpoint.resume == "exact"
        group.on_rank_0(lambda: check_exact(run, settings, exact, reporter.warn))
        start_run(run, identity)
        run.record_auto(parts.setup.record)
        if run.manifest.flops_per_step is None:
            n_examples = data.train.n_documents if data.train.streamed is None else None  # which nothing has counted
            run.update(flops_per_step=parts.flops_per_step, train_examples=n_examples)
        write_model_files(run, recipe, parts.model, data, parts.fully_trainable)
        report_start(parts, reporter)
        session = Session(run, parts, reporter, started, options.stop_at)
        with StopRequest(reporter.say) as stop:
            return finish(session, session.train(stop), stop)
