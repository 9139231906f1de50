"""Classes and tags of `minitf predict` and `evaluate`: options, confusion matrix and calibration plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mini_tf.cli.terminal import files
from mini_tf.cli.terminal.console import Console
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    import numpy as np

    from mini_tf.pipelines import PredictOptions
    from mini_tf.trained.opening import Trained
    from mini_tf.training.evaluation import MetricAccumulator

_decision = partial(typer.Option, rich_help_panel="Classes and tags")
TOP = _decision(
    "--top",
    metavar="N",
    min=1,
    help="Also print the N most probable classes, of tags for each word.",
    show_default=False,
)
THRESHOLD = _decision(
    "--threshold",
    metavar="P|CLASS=P",
    help=(
        "No label where its probability is below P; a class is the label where its probability is at least its P."
        " Repeatable."
    ),
    show_default=False,
)
SHOWN = 12
"""Up to so many classes the confusion matrix is printed by default."""


@dataclass(frozen=True)
class ClassPlots:
    """The files to write; None: not requested."""

    confusion: Path | None
    calibration: Path | None

    def check(self, force: bool) -> None:
        """UsageFault if a file cannot be written or both are the same."""
        requested = {f"--{name}": file for name, file in vars(self).items() if file is not None}
        files.check_look([*requested.values()], "--confusion")
        for option, file in requested.items():
            files.check_file(file, files.picture_or_json(), force, option)
        if len(requested) == 2 and len({file.resolve() for file in requested.values()}) == 1:
            raise UsageFault("--confusion and --calibration name the same file", hint="give two files")

    def check_task(self, trained: "Trained") -> None:
        """UsageFault if the task has no such plot."""
        objective = trained.recipe.objective
        settings = objective.pipeline()
        for name, file in vars(self).items():
            if file is not None and (settings is None or name not in settings.PLOTS):
                trained_with = f"{trained.folder.name} was trained with the objective {objective.kind}"
                raise UsageFault(f"--{name} needs classes or tags, but {trained_with}")

    def write(
        self, console: Console, trained: "Trained", accumulator: "MetricAccumulator | None", title: str
    ) -> dict[str, Any]:
        """Write the files; returns their content as JSON."""
        names = trained.labels.names if trained.labels is not None else ()
        result: dict[str, Any] = {}
        counts = self._confusion(trained, accumulator)
        if counts is not None:
            from mini_tf.drawing.classifier_plots import draw_confusion

            result["confusion"] = {"names": list(names), "counts": counts.tolist()}
            named, draw_counts = (
                [self.confusion] if self.confusion else [],
                partial(draw_confusion, counts, names, title),
            )
            files.write_all(console, named, result["confusion"], draw_counts)
        if self.calibration:
            from mini_tf.drawing.classifier_plots import draw_calibration
            from mini_tf.scores.label_scores import calibration
            from mini_tf.training.evaluation import ClassProbabilities

            assert isinstance(accumulator, ClassProbabilities), "the pipeline declares the plot"
            reliability = calibration(accumulator.probabilities, accumulator.truth)
            temperature = trained.decision.temperature if trained.decision is not None else 1.0
            arrays = {name: getattr(reliability, name).tolist() for name in ("confidence", "accuracy", "counts")}
            result["calibration"] = reliability._asdict() | arrays | {"temperature": temperature}
            draw = partial(draw_calibration, *reliability, title, temperature=temperature)
            files.write_all(console, [self.calibration], result["calibration"], lambda suffix: draw(suffix=suffix))
        return result

    def calibrated(self, trained: "Trained", accumulator: "MetricAccumulator | None") -> tuple[str, dict[str, Any]]:
        """What the fitted temperature changes on these data, as a line and as JSON; both empty without one."""
        from mini_tf.scores.label_scores import calibration, log_loss
        from mini_tf.training.evaluation import ClassProbabilities

        if not isinstance(accumulator, ClassProbabilities):
            return "", {}
        truth, after, before = accumulator.truth, accumulator.probabilities, accumulator.unscaled
        if before is None:
            if all(member.decision is None or member.decision.temperature == 1 for member in trained.members):
                return "", {}
            error = calibration(after, truth).error
            line = "probabilities are the mean of those of the models, each with its temperature"
            return f"{line}: expected calibration error {error:.4f}", {"calibrated": {"ece": error}}
        assert trained.decision is not None
        figures = {
            "log_loss": [log_loss(probabilities, truth) for probabilities in (before, after)],
            "ece": [calibration(probabilities, truth).error for probabilities in (before, after)],
        }
        changes = {name: f"{first:.4f} -> {last:.4f}" for name, (first, last) in figures.items()}
        temperature = trained.decision.temperature
        line = f"temperature {temperature:.3g}: loss {changes['log_loss']}, expected calibration error {changes['ece']}"
        return line, {"calibrated": {"temperature": temperature, **figures}}

    def unlabelled(self, accumulator: "MetricAccumulator | None") -> str:
        """A line on targets to which --threshold gives no label; "" if all have one."""
        from mini_tf.training.evaluation import ClassPredictions

        if not isinstance(accumulator, ClassPredictions) or not (n := int((accumulator.predicted < 0).sum())):
            return ""
        return f"{n:,} of {len(accumulator.truth):,} predictions have no label (--threshold): they count as wrong"

    def show(self, console: Console, trained: "Trained", accumulator: "MetricAccumulator | None", title: str) -> None:
        """Print the confusion matrix of few classes if no file was requested."""
        counts = self._confusion(trained, accumulator)
        if self.confusion is self.calibration is None and counts is not None:
            from mini_tf.drawing.classifier_plots import confusion_text

            assert trained.labels is not None
            console.show(confusion_text, counts, trained.labels.names, title)

    def _confusion(self, trained: "Trained", accumulator: "MetricAccumulator | None") -> "np.ndarray | None":
        """The confusion matrix, if it is requested or few classes show it by default."""
        from mini_tf.scores.label_scores import confusion
        from mini_tf.training.evaluation import ClassPredictions

        settings, labels = trained.recipe.objective.pipeline(), trained.labels
        if labels is None or not isinstance(accumulator, ClassPredictions):
            return None
        by_default = settings.PLOTS.get("confusion") and len(labels.names) <= SHOWN
        if not self.confusion and not by_default:
            return None
        return confusion(accumulator.truth, accumulator.predicted, len(labels.names))


def class_options(trained: "Trained", top: int | None, thresholds: Sequence[str]) -> "PredictOptions":
    """UsageFault if the run predicts no classes, or a threshold is invalid."""
    from mini_tf.pipelines._commands import predict_options

    return predict_options(trained, top, [_threshold(threshold) for threshold in thresholds])


def _threshold(threshold: str) -> tuple[str | None, float]:
    """The class of P or CLASS=P, and its threshold."""
    named, _, text = threshold.rpartition("=")
    try:
        return named if "=" in threshold else None, float(text)
    except ValueError:
        raise UsageFault(
            f"--threshold {threshold}: must be a probability from 0 to 1", hint="0.8, or CLASS=0.3 for one class"
        ) from None
