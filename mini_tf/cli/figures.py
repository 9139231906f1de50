"""What the commands measure, by the names that --assert uses: a gate that can never be met is refused before any work is done."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.recipe.gates import Gate
    from mini_tf.recipe.recipe import Recipe

OF_SEEDS = (".mean", ".std", ".min", ".max")
"""Behind any name where several seeds are trained; the name alone is their median."""


def check_gates(
    gates: "Sequence[Gate]", command: Literal["training", "evaluate", "predict"], recipe: "Recipe", classes: Sequence[str] | None = None
) -> None:
    """UsageFault where `command` measures no such figure of a run of this recipe, Unavailable where the package for it is missing.

    classes: the names of the run's classes or tags, where they are known; by default those that the recipe lists.
    """
    from mini_tf.recipe.gates import metric_names
    from mini_tf.scores import packages_of, require

    if classes is None:
        classes = recipe.objective.classes
    names = _names(command, recipe, classes)
    for gate in gates:
        spelt: Sequence[str] = metric_names(gate.metric)
        if command == "training":
            spelt = [_without_statistic(name, recipe.train.seeds, names) for name in spelt]
        figure = next((name for name in spelt if _is_among(name, names)), None)
        if figure is None:
            raise _no_such_figure(gate.metric, spelt[0], command, recipe, names)
        if classes is not None:
            _check_class(gate.metric, figure, classes, recipe)
        require(*packages_of(recipe.objective.pipeline(), [figure.removeprefix("val.")]))


def _names(command: str, recipe: "Recipe", classes: Sequence[str] | None) -> list[str]:
    """All that a command measures; a name that ends in a dot goes on with a class or a type."""
    from mini_tf.scores import figures_of

    lacking = {"loss"} if command == "predict" else set[str]()
    if command == "training" and not recipe.eval.translations:
        lacking |= _written(recipe)
    found = [name for name in figures_of(recipe.objective, classes) if name not in lacking]
    if command == "training":
        return [*(f"val.{name}" for name in found), "train.loss", "minutes"]
    return [*found, "targets"] if command == "evaluate" else found


def _written(recipe: "Recipe") -> set[str]:
    """Figures of what the model writes."""
    pipeline = recipe.objective.pipeline()
    return set() if pipeline is None else {*pipeline.WRITTEN}


def _without_statistic(name: str, seeds: int, names: Sequence[str]) -> str:
    """val.accuracy of val.accuracy.mean; UsageFault where there is one seed, which has no mean. But a class may be called `mean`."""
    figure, dot, statistic = name.rpartition(".")
    if dot + statistic not in OF_SEEDS or not _is_among(figure, names):
        return name
    if seeds > 1:
        return figure
    if _is_among(name, names):
        return name
    raise UsageFault(f"--assert {name}: one seed has no {statistic}", hint="train.seeds=5 trains several")


def _is_among(figure: str, names: Sequence[str]) -> bool:
    return any(figure.startswith(name) and figure != name if name.endswith(".") else figure == name for name in names)


def _no_such_figure(told: str, figure: str, command: str, recipe: "Recipe", names: Sequence[str]) -> UsageFault:
    from mini_tf.recipe.kinds import kinds_of
    from mini_tf.scores import COMMON, figures_of

    kind, bare = recipe.objective.kind, figure.removeprefix("val.")
    if bare in _written(recipe):
        return UsageFault(f"--assert {told}: with eval.translations=0 nothing is written that could be judged", hint="leave that out")
    found: dict[str, Any] = kinds_of("objectives")
    others = [word for word, settings in found.items() if _is_among(bare, figures_of(settings)) and bare not in COMMON]
    listed = ", ".join(f"{name}CLASS" if name.endswith(".") else name for name in names)
    hint = f"it is a figure of {' and '.join(others)}, and the objective is {kind}" if others and kind not in others else None
    return UsageFault(f"--assert {told}: {command} measures no such figure; it does {listed}", hint=hint)


def _check_class(told: str, figure: str, classes: Sequence[str], recipe: "Recipe") -> None:
    """UsageFault where a figure is of one class, or of one type of entities, that there is not."""
    kind, _, wanted = figure.removeprefix("val.").partition(".")
    pipeline = recipe.objective.pipeline()
    if pipeline is None or not wanted or f"{kind}." not in pipeline.FIGURES:
        return
    if wanted not in (known := pipeline.classes_of(kind, classes)):
        raise UsageFault(f"--assert {told}: there is no class {wanted!r}", hint=f"there are: {', '.join(known[:20])}")
