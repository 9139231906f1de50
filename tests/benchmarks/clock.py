"""When there are enough steps, and what one takes: some to warm up, then as many as fit into a few seconds; the median
counts.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

WARM_UP = 4
LEAST = 5
N_LOSSES = 3
"""First losses that are kept, to compare the sides by."""


def enough(ends: Sequence[float], seconds: float) -> bool:
    """Whether steps that ended at these times are warm, at least LEAST, and `seconds` long."""
    return len(ends) >= WARM_UP + LEAST and ends[-1] - ends[WARM_UP - 1] >= seconds


def figures(ends: Sequence[float]) -> dict[str, Any]:
    """The median of the steps after the warm-up, and how many they are."""
    taken = [b - a for a, b in zip(ends[WARM_UP - 1 :], ends[WARM_UP:], strict=False)]
    return {"seconds": statistics.median(taken), "steps": len(taken)}


def step_seconds(losses: Iterator[float], seconds: float) -> dict[str, Any]:
    """Figures of `losses`, which makes one step for each loss it gives, and the first losses themselves."""
    seen: list[float] = []
    ends: list[float] = []
    while not enough(ends, seconds):
        seen.append(next(losses))
        ends.append(time.perf_counter())
    return {**figures(ends), "losses": seen[:N_LOSSES]}
