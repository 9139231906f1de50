"""Table and plot of `runs compare` over the number of training examples."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mini_tf.run.comparison.groups import RunGroup


class LearningCurves:
    """curves: empty unless runs of one recipe differ in the number of training examples."""

    def __init__(self, groups: "Sequence[RunGroup]") -> None:
        from mini_tf.run.comparison.groups import learning_curves

        self.curves = learning_curves(groups)

    def tables(self) -> list[tuple[list[str], list[list[str]]]]:
        if not self.curves:
            return []
        sizes = sorted({n for curve in self.curves for n, _ in curve.values})
        rows = [[f"{n:,}", *(self._cell(curve.means.get(n)) for curve in self.curves)] for n in sizes]
        return [([f"{self.curves[0].metric} by training examples", *(curve.name for curve in self.curves)], rows)]

    def to_json(self) -> dict[str, Any]:
        lines = [
            {
                "name": one.name,
                "metric": one.metric,
                "points": [{"train_examples": n, "values": [*values]} for n, values in one.values],
            }
            for one in self.curves
        ]
        return {"learning_curves": lines}

    def draw(self, suffix: str) -> bytes:
        from mini_tf.drawing.curves.learning import draw_learning_curves

        return draw_learning_curves({curve.name: curve.values for curve in self.curves}, self.curves[0].metric, suffix)

    @staticmethod
    def _cell(mean: Any) -> str:
        return "" if mean is None else f"{mean.mean:.4f}" + ("" if mean.half is None else f" ± {mean.half:.4f}")
