"""The end of a run: the final evaluation, baselines, plots and closing messages."""

from collections.abc import Iterator, Sequence
from typing import Any

from mini_tf.jobs.baselines import Baselines, baselines_of
from mini_tf.jobs.messages import LOSSES, curves, format_metrics, next_commands, overfitting
from mini_tf.jobs.session import RunResult, Session
from mini_tf.pipelines import Fitter, pipeline_of
from mini_tf.run.loading import load_model, load_objective
from mini_tf.run.tensors import specs
from mini_tf.system.progress import show_progress
from mini_tf.training.evaluation import MetricAccumulator
from mini_tf.training.signals import Stopped, StopRequest


def finish(session: Session, step: int, stop: StopRequest) -> RunResult:
    """Finish the run after its last step: all processes evaluate, rank 0 does the rest."""
    fitter = pipeline_of(session.parts).decision_fitter()
    if session.finished and session.counters.met:  # the best checkpoint may not meet the bound
        session.run.publish(step)
    stopping = bool(stop) or step >= session.stop_at
    evaluated = None if stopping and not session.finished else _evaluate(session, stop, fitter)
    n_generated = 0 if evaluated is None else session.parts.recipe.eval.translations
    with session.generating(n_generated):
        metrics, exit_code = session.group.on_rank_0(lambda: _finish(session, step, stop, evaluated, fitter))
    return RunResult(session.run.folder, {**metrics}, exit_code)


def _finish(
    session: Session, step: int, stop: StopRequest, evaluated: dict[str, float] | None, fitter: Fitter | None
) -> tuple[dict[str, float], int]:
    """Scores of generated texts, baselines, plots, closing messages; returns all metrics and the exit code.

    evaluated: final metrics; None after a stop.
    """
    run, unevaluated = session.run, f"stopped at step {step}, saved, before the last evaluation"
    if evaluated is None:
        return _stopped(session, unevaluated if session.finished else f"stopped at step {step}, saved", stop)
    try:
        scores = session.samples.scores(full=True, each_chunk=stop.check)
        final = evaluated | {f"val.{name}": value for name, value in scores.items()}
        minutes, baselines = session.counters.wall() / 60, baselines_of(session.parts, stop.check)
    except Stopped:
        return _stopped(session, unevaluated, stop)
    metrics = final | {"train.loss": session.counters.train_loss, "minutes": minutes} | baselines.metrics(final)
    if (name := baselines.name(final)) is not None:
        run.update(baseline=name)
    with show_progress("plotting the losses"):
        run.plot_losses()
    if fitter is not None:
        run.update(model=run.manifest.model_with(fitter.decision))
    for line in _closing_lines(session, step, metrics, baselines, [] if fitter is None else fitter.lines):
        session.reporter.say(line)
    # Last and fast: if killed after it, the run is done and another --extend would add to it.
    run.finish("done", metrics=metrics)
    return metrics, 0


def _stopped(session: Session, state: str, stop: StopRequest) -> tuple[dict[str, float], int]:
    session.reporter.say(f"{state}; run the same command{'' if stop else ' without --stop-at'} to continue")
    by = stop.signal.name if stop.signal else "--stop-at"
    session.run.finish("stopped", stop.exit_code, error=f"stopped by {by}")
    return {}, stop.exit_code


def _evaluate(session: Session, stop: StopRequest, fitter: MetricAccumulator | None) -> dict[str, float] | None:
    """Metrics of model.safetensors on all validation data; None if a signal ended it. Collective."""
    model: dict[str, Any] | None = session.group.on_rank_0(lambda: session.run.manifest.model)
    if session.full is not None and model is not None and model["step"] == session.full[0] and fitter is None:
        return session.full[1]
    step = model["step"] if model else None
    merged = session.run.export_weights is not None  # model.safetensors then has other tensors than the trained model
    objective = load_objective(session.run.folder, step or "best", specs(session.parts.objective_tensors()))
    session.parts.load(load_model(session.run.folder, step if merged else None), objective)

    def check() -> None:
        if session.agree(stop):
            raise Stopped

    try:
        return session.measure(None, check, fitter)
    except Stopped:
        return None


def _closing_lines(
    session: Session, step: int, metrics: dict[str, float], baselines: Baselines, fitted: Sequence[str]
) -> Iterator[str]:
    model = session.run.manifest.model
    by = "" if session.parts.best.name == "loss" else f" by {session.parts.best.name}"
    best = f" (the best checkpoint{by}, step {model['step']} of {step})" if model and model["step"] != step else ""
    summary = format_metrics(metrics, session.parts.recipe.objective)
    yield f"done: {summary}, on {session.parts.all_validation_data}{best}"
    yield from baselines.lines(metrics)
    yield from fitted
    yield from curves({name: session.run.curve(key) for name, key in LOSSES.items()})
    if session.skips:
        yield f"{session.skips} of {step} steps were skipped: their loss or gradient was not finite"
    epochs = step / session.training.feed.plan.epoch_steps
    yield overfitting(epochs, session.counters.train_loss, session.counters.val_loss, session.parts.recipe.objective)
    sample = session.run.last_sample()
    if copied := session.samples.copied(sample):
        yield copied
    pipeline = session.samples.settings
    command = pipeline.COMMAND if pipeline is not None and (sample or pipeline.COMMAND == "predict") else None
    yield next_commands(session.run.folder, command)
