"""What `generate` and `predict` open, for the commands, Python and the server, with their options checked."""

from collections.abc import Mapping, Sequence
from typing import Any

from mini_tf.pipelines import GenerateOptions, Generator, PipelineSettings, PredictOptions, option, pipeline_of
from mini_tf.recipe.kind_settings.pipelines import CONTEXT, GENERATE_OPTIONS, OPTION_RANGES
from mini_tf.recipe.values import no_such_class
from mini_tf.system.errors import UsageFault, suggest
from mini_tf.trained.opening import Trained


def generate_settings(trained: Trained) -> PipelineSettings:
    """The settings of the pipeline of a run that generates; UsageFault for another run."""
    return _settings(trained, "generate", "which generates no text")


def predict_settings(trained: Trained) -> PipelineSettings:
    """The settings of the pipeline of a run that predicts; UsageFault for another run."""
    return _settings(trained, "predict", "which predicts no labels")


def _settings(trained: Trained, command: str, refusal: str) -> PipelineSettings:
    settings, name = trained.recipe.objective.pipeline(), trained.folder.name
    if settings is None or command != settings.COMMAND:
        other = None if settings is None else settings.COMMAND
        hint = None if other is None else f"use `minitf {other} {name}`"
        raise UsageFault(f"{name} was trained with the objective {trained.recipe.objective.kind}, {refusal}", hint=hint)
    return settings


def open_generator(trained: Trained, options: Mapping[str, Any], **how: Any) -> Generator:
    """A generator with these options, by name; of them `context` is the maximum context in tokens.

    how: the other fields of `GenerateOptions`. UsageFault for an option that there is not, a value out of range, or an
    option that the model does not support.
    """
    for name in options:
        _refuse_unsupported(trained, name)
    _check_ranges(options)
    explicit = {name: value for name, value in options.items() if name != CONTEXT}
    return pipeline_of(trained).generator(GenerateOptions(explicit, _context(trained, options.get(CONTEXT)), **how))


def _refuse_unsupported(trained: Trained, name: str) -> None:
    """UsageFault for an option that there is not, or that this model does not support."""
    if name not in GENERATE_OPTIONS | {CONTEXT}:
        raise UsageFault(f"{option(name)}: no such option", hint=suggest(name, GENERATE_OPTIONS, shown=option) or None)
    unsupported = generate_settings(trained).UNSUPPORTED_OPTIONS
    if name in unsupported:
        why = unsupported[name].format(run=trained.folder.name, model=trained.recipe.model.kind)
        raise UsageFault(f"{option(name)}: {why}", hint="leave it out")


def _check_ranges(options: Mapping[str, Any]) -> None:
    for name, (least, greatest) in OPTION_RANGES.items():
        value = options.get(name, least)
        if isinstance(value, bool) or not isinstance(value, int):
            raise UsageFault(f"{option(name)}: must be an integer, got {value!r}")
        if value < least or (greatest is not None and value > greatest):
            must = f"at least {least}" if greatest is None else f"from {least} to {greatest:,}"
            raise UsageFault(f"{option(name)}: must be {must}, got {value}")


def _context(trained: Trained, requested: int | None) -> int:
    """Maximum context in tokens; UsageFault where the model has no positions beyond it."""
    if requested is None:
        return trained.generation_context
    model = trained.recipe.model
    for limit in model.position_limits(trained.model.context):
        if limit.source == model.SOURCE and requested > limit.length:
            message = f"--context {requested}: the model's {limit.kind} positions end at {limit.length}"
            raise UsageFault(message, hint="rotary, alibi and sinusoidal positions have no maximum")
    return requested


def predict_options(
    trained: Trained, top: int | None = None, thresholds: Sequence[tuple[str | None, float]] = ()
) -> PredictOptions:
    """thresholds: of classes by name; that of None is for all others.

    UsageFault if the run predicts no classes, or a threshold is invalid.
    """
    settings = trained.recipe.objective.pipeline()
    option = "--top" if top is not None else "--threshold" if thresholds else None
    if option and (settings is None or not settings.PREDICTS_CLASSES):
        trained_with = f"{trained.folder.name} was trained with the objective {trained.recipe.objective.kind}"
        raise UsageFault(f"{option} needs classes or tags, but {trained_with}", hint="remove it")
    if top is not None and top < 1:
        raise UsageFault(f"--top: must be at least 1, got {top}")
    by_label: dict[str | None, float] = {}
    for name, value in thresholds:
        shown = f"--threshold {value:g}" if name is None else f"--threshold {name}={value:g}"
        if name is not None and trained.labels is not None and name not in trained.labels.names:
            raise UsageFault(f"{shown}: {no_such_class(name, trained.labels.names)}")
        if name in by_label:
            which = "all classes" if name is None else name
            raise UsageFault(f"{shown}: a second threshold of {which}", hint="remove one of them")
        if not 0 <= value <= 1:
            raise UsageFault(f"{shown}: must be a probability from 0 to 1", hint="0.8, or CLASS=0.3 for one class")
        by_label[name] = value
    return PredictOptions(top, by_label)
