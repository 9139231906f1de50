"""Gates: comparisons that a run's figures are held to, by --assert and by a recipe's `expect`."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt

from mini_tf.system.errors import UsageFault

_GATE = re.compile(r"\s*([A-Za-z_](?:[^<>=]*[^<>=\s])?)\s*(<=|>=|==|<|>)\s*([-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*")
_SIGNS: dict[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq}


@dataclass(frozen=True)
class Gate:
    """`metric sign bound`, such as val.loss < 1.9, or f1.creative work > 0.3, since classes are called as data call them."""

    metric: str
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> "Gate":
        """From `val.loss<1.9`; UsageFault where it is no such comparison."""
        if (found := _GATE.fullmatch(text)) is None:
            raise UsageFault(f"--assert {text!r} is no comparison", hint="write METRIC<NUMBER, such as 'val.loss<1.9'")
        return cls(found[1], found[2], float(found[3]))

    def failure(self, metrics: Mapping[str, float | None]) -> str | None:
        """What is wrong, or None where the gate is met; a figure that was not measured or is not a number meets no gate."""
        name = next((name for name in spellings(self.metric) if name in metrics), None)
        if name is None:
            return f"{self.metric}: not measured; there is {', '.join(sorted(metrics)) or 'nothing'}"
        value = metrics[name]
        if value is not None and _SIGNS[self.sign](value, self.bound):
            return None
        return f"{self.metric} {'was not measured' if value is None else f'is {value:.6g}'}, but must be {self.sign} {self.bound:g}"


def spellings(metric: str) -> tuple[str, str]:
    """A metric, and the same as other commands call it: `val.loss` of a training run is `loss` of an evaluation."""
    return metric, metric.removeprefix("val.") if metric.startswith("val.") else f"val.{metric}"


def failures(gates: Iterable[Gate], metrics: Mapping[str, float | None]) -> list[str]:
    """A line for each gate that is not met."""
    return [line for gate in gates if (line := gate.failure(metrics)) is not None]
