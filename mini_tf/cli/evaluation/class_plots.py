"""Confusion matrix and calibration plot of `minitf evaluate`."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mini_tf.cli.terminal import files
from mini_tf.cli.terminal.console import Console
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    import numpy as np

    from mini_tf.trained.opening import Trained
    from mini_tf.training.evaluation import MetricAccumulator

SHOWN = 12
"""Up to so many classes the confusion matrix is printed by default."""


@dataclass(frozen=True)
class ClassPlots:
    """The files to write; None: not requested."""

    confusion: Path | None
    calibration: Path | None

    def check(self, force: bool) -> None:
        """UsageFault if a file cannot be written or both are the same."""
        both = {"--confusion": self.confusion, "--calibration": self.calibration}
        requested = {option: file for option, file in both.items() if file is not None}
        files.check_look([*requested.values()], "--confusion")
        for option, file in requested.items():
            files.check_file(file, files.picture_or_json(), force, option)
        if len(requested) == 2 and len({file.resolve() for file in requested.values()}) == 1:
            raise UsageFault("--confusion and --calibration name the same file", hint="give two files")

    def check_task(self, trained: "Trained") -> None:
        """UsageFault if the task has no such plot."""
        objective = trained.recipe.objective
        settings = objective.pipeline()
        pictures = {} if settings is None else settings.PLOTS
        for name, file in (("confusion", self.confusion), ("calibration", self.calibration)):
            if file is not None and name not in pictures:
                trained_with = f"{trained.folder.name} was trained with the objective {objective.kind}"
                raise UsageFault(f"--{name} needs classes or tags, but {trained_with}")

    def write(
        self, console: Console, trained: "Trained", accumulator: "MetricAccumulator | None", title: str
    ) -> dict[str, Any]:
        """Write the files; returns their content as JSON."""
        from mini_tf.drawing.classifier_plots import draw_calibration, draw_confusion
        from mini_tf.scores.label_scores import calibration
        from mini_tf.training.evaluation import ClassProbabilities

        names = trained.labels.names if trained.labels is not None else ()
        result: dict[str, Any] = {}
        counts = self._confusion(trained, accumulator)
        if counts is not None:
            result["confusion"] = {"names": list(names), "counts": counts.tolist()}
            files_to_write = [self.confusion] if self.confusion else []
            files.write_all(
                console,
                files_to_write,
                result["confusion"],
                lambda suffix: draw_confusion(counts, names, title, suffix),
            )
        if self.calibration:
            assert isinstance(accumulator, ClassProbabilities), "the pipeline declares the plot"
            found = calibration(accumulator.probabilities, accumulator.truth)
            result["calibration"] = {name: getattr(found, name) for name in found._fields}
            result["calibration"] |= {
                name: getattr(found, name).tolist() for name in ("confidence", "accuracy", "counts")
            }
            temperature = trained.decision.temperature if trained.decision is not None else 1.0
            result["calibration"]["temperature"] = temperature
            draw = partial(draw_calibration, *found, title, temperature=temperature)
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
            error = calibration(after, truth).error
            several = any(one.decision is not None and one.decision.temperature != 1 for one in trained.members)
            line = (
                "probabilities are the mean of those of the models, each with its temperature: expected calibration"
                f" error {error:.4f}"
            )
            return (line, {"calibrated": {"ece": error}}) if several else ("", {})
        assert trained.decision is not None
        figures = {
            "log_loss": [log_loss(one, truth) for one in (before, after)],
            "ece": [calibration(one, truth).error for one in (before, after)],
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
        from mini_tf.drawing.classifier_plots import confusion_text

        counts = self._confusion(trained, accumulator)
        if self.confusion is self.calibration is None and counts is not None:
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
