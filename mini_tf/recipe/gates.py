"""Gates: bounds on a run's metrics, from --assert and a recipe's `expect`."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt

from mini_tf.system.errors import UsageFault

_GATE = re.compile(r"\s*([A-Za-z_](?:[^<>=]*[^<>=\s])?)\s*(<=|>=|==|<|>)\s*([-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*")
_SIGNS: dict[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq}


@dataclass(frozen=True)
class Gate:
    """`metric sign bound`, such as val.loss < 1.9 or f1.creative work > 0.3 (class names may contain spaces)."""

    metric: str
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> "Gate":
        """Parse `val.loss<1.9`; UsageFault if it is not a comparison."""
        if (found := _GATE.fullmatch(text)) is None:
            raise UsageFault(f"--assert {text!r} is not a comparison", hint="write METRIC<NUMBER, such as 'val.loss<1.9'")
        return cls(found[1], found[2], float(found[3]))

    def failure(self, metrics: Mapping[str, float | None]) -> str | None:
        """The failure message, or None if the gate passes; a missing metric or NaN always fails."""
        name = next((name for name in metric_names(self.metric) if name in metrics), None)
        if name is None:
            return f"{self.metric}: not measured; measured: {', '.join(sorted(metrics)) or 'nothing'}"
        value = metrics[name]
        if value is not None and _SIGNS[self.sign](value, self.bound):
            return None
        return f"{self.metric} {'was not measured' if value is None else f'is {value:.6g}'}, but must be {self.sign} {self.bound:g}"


def metric_names(metric: str) -> tuple[str, str]:
    """The names of a metric: `val.loss` in training is `loss` in evaluation."""
    return metric, metric.removeprefix("val.") if metric.startswith("val.") else f"val.{metric}"


def failures(gates: Iterable[Gate], metrics: Mapping[str, float | None]) -> list[str]:
    """One line per failed gate."""
    return [line for gate in gates if (line := gate.failure(metrics)) is not None]
