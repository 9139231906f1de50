"""Confusion matrix and calibration plot of `minitf evaluate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mini_tf.cli.terminal import files
from mini_tf.cli.terminal.console import Console
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.trained.opening import Trained
    from mini_tf.training.evaluation import MetricAccumulator

SUFFIXES = (".png", ".svg", ".json")
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
        for option, file in requested.items():
            files.check([file], SUFFIXES, force, option)
        if len(requested) == 2 and len({file.resolve() for file in requested.values()}) == 1:
            raise UsageFault("--confusion and --calibration name the same file", hint="give two files")

    def accumulator(self, trained: "Trained", own: "MetricAccumulator | None") -> "MetricAccumulator | None":
        """The pipeline's accumulator, which also counts the confusion matrix if needed; UsageFault if the task has no
        such plot.
        """
        from mini_tf.training.confusion import Confusion

        objective, labels = trained.recipe.objective, trained.labels
        settings = objective.pipeline()
        pictures = {} if settings is None else settings.PICTURES
        for name, file, of in (("confusion", self.confusion, "classes or tags"), ("calibration", self.calibration, "classes")):
            if file is not None and name not in pictures:
                raise UsageFault(f"--{name} needs {of}, but {trained.folder.name} was trained with the objective {objective.kind}")
        by_default = pictures.get("confusion") and labels is not None and len(labels.names) <= SHOWN
        return Confusion(own, len(labels.names)) if own is not None and labels is not None and (self.confusion or by_default) else own

    def write(self, console: Console, trained: "Trained", accumulator: "MetricAccumulator | None", title: str) -> dict[str, Any]:
        """Write the files; returns their content as JSON."""
        from mini_tf.drawing.calibration import draw_calibration
        from mini_tf.drawing.confusion import draw_confusion
        from mini_tf.scores.classes import calibration
        from mini_tf.training.confusion import Confusion
        from mini_tf.training.evaluation import ClassProbabilities

        names = trained.labels.names if trained.labels is not None else ()
        result: dict[str, Any] = {}
        if isinstance(accumulator, Confusion):
            counts, accumulator = accumulator.counts, accumulator.accumulator
            result["confusion"] = {"names": list(names), "counts": counts.tolist()}
            files_to_write = [self.confusion] if self.confusion else []
            files.write_all(console, files_to_write, result["confusion"], lambda suffix: draw_confusion(counts, names, title, suffix))
        if self.calibration:
            assert isinstance(accumulator, ClassProbabilities), "the pipeline declares the plot"
            found = calibration(accumulator.probabilities, accumulator.truth)
            result["calibration"] = {name: getattr(found, name) for name in found._fields}
            result["calibration"] |= {name: getattr(found, name).tolist() for name in ("confidence", "accuracy", "counts")}
            files.write_all(console, [self.calibration], result["calibration"], lambda suffix: draw_calibration(*found, title, suffix))
        return result

    def show(self, console: Console, trained: "Trained", accumulator: "MetricAccumulator | None", title: str) -> None:
        """Print the confusion matrix of few classes if no file was requested."""
        from mini_tf.drawing.confusion import confusion_text
        from mini_tf.training.confusion import Confusion

        if self.confusion is self.calibration is None and isinstance(accumulator, Confusion) and trained.labels is not None:
            console.show(confusion_text, accumulator.counts, trained.labels.names, title)
