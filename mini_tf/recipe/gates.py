"""Gates: bounds on a run's metrics, from --assert and a recipe's `expect`."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt

from mini_tf.system.errors import UsageFault

_NAME = r"[A-Za-z_](?:[^<>=]*[^<>=\s])?"
_OTHER = r"[A-Za-z_][^<>=]*?"  # as short as possible, so that a number behind it is not part of the name
_UNSIGNED = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_GATE = re.compile(rf"\s*({_NAME})\s*(<=|>=|==|<|>)\s*(?:([-+]?{_UNSIGNED})|({_OTHER})\s*([-+]\s*{_UNSIGNED})?)\s*")
_NOT_FINITE = ("nan", "inf", "infinity")
_SIGNS: dict[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq}

Metrics = Mapping[str, float | None]


@dataclass(frozen=True)
class Gate:
    """`metric sign bound`, such as val.loss < 1.9 or f1.creative work > 0.3 (class names may contain spaces).

    With `other`, the bound is that metric plus `bound`, as in val.accuracy > baseline.accuracy - 0.005.
    """

    metric: str
    sign: str
    bound: float
    other: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Gate":
        """Parse `val.loss<1.9` or `val.loss<baseline.loss-0.1`; UsageFault if it is not a comparison."""
        if (found := _GATE.fullmatch(text)) is None or not (found[3] or found[4]) or str(found[4]).lower() in _NOT_FINITE:
            hint = "write METRIC<NUMBER or METRIC<METRIC, such as 'val.loss<1.9'"
            raise UsageFault(f"--assert {text!r} is not a comparison", hint=hint)
        if found[3]:
            return cls(found[1], found[2], float(found[3]))
        return cls(found[1], found[2], float((found[5] or "0").replace(" ", "")), found[4])

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that it compares: one, or two."""
        return (self.metric,) if self.other is None else (self.metric, self.other)

    def failure(self, metrics: Metrics) -> str | None:
        """The failure message, or None if the gate passes; a missing metric or NaN always fails."""
        for name in self.metrics:
            if not _is_measured(name, metrics):
                return f"{name}: not measured; measured: {', '.join(sorted(metrics)) or 'nothing'}"
        value, other = _value(self.metric, metrics), 0.0 if self.other is None else _value(self.other, metrics)
        if None not in (value, other) and _SIGNS[self.sign](value, other + self.bound):  # type: ignore[arg-type,operator]
            return None
        bound = f"{self.bound:g}"
        if self.other is not None:
            bound = f"{self.other}{f' {self.bound:+g}' if self.bound else ''} ({'not measured' if other is None else f'{other:.6g}'})"
        return f"{self.metric} {'was not measured' if value is None else f'is {value:.6g}'}, but must be {self.sign} {bound}"


def metric_names(metric: str) -> tuple[str, str]:
    """The names of a metric: `val.loss` in training is `loss` in evaluation."""
    return metric, metric.removeprefix("val.") if metric.startswith("val.") else f"val.{metric}"


def _is_measured(metric: str, metrics: Metrics) -> bool:
    return any(name in metrics for name in metric_names(metric))


def _value(metric: str, metrics: Metrics) -> float | None:
    return next(metrics[name] for name in metric_names(metric) if name in metrics)


def failures(gates: Iterable[Gate], metrics: Metrics) -> list[str]:
    """One line per failed gate."""
    return [line for gate in gates if (line := gate.failure(metrics)) is not None]
