"""Numbers with units: k, M, G; bytes; seconds and minutes. Numbers and ranges of options, written as in a recipe."""

from collections.abc import Sequence
from typing import Any

from mini_tf.system.errors import UsageFault


def short(number: float) -> str:
    """1234567 -> "1.23 M"."""
    number, unit = _scaled(number, 1000, ("", "k", "M", "G", "T", "P", "E"))
    return f"{number:.3g} {unit}".rstrip()


def in_flop(number: float) -> str:
    """1234567 -> "1.23 MFLOP"."""
    number, unit = _scaled(number, 1000, ("", "k", "M", "G", "T", "P", "E"))
    return f"{number:.3g} {unit}FLOP"


def in_bytes(number: float) -> str:
    """1536 -> "1.5 KiB"."""
    number, unit = _scaled(number, 1024, ("bytes", "KiB", "MiB", "GiB", "TiB"))
    return f"{number:.4g} {unit}"


def duration(seconds: float) -> str:
    """0.0312 -> "31.2 ms", 75 -> "75 s", 500 -> "8.3 min", 9000 -> "2.5 h"."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 99.5:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _scaled(number: float, step: int, units: Sequence[str]) -> tuple[float, str]:
    """The number in the largest unit in which it is at least 1."""
    power = next((power for power in range(len(units)) if number < step ** (power + 1)), len(units) - 1)
    return number / step**power, units[power]


def doubled(option: str, text: str, largest: int) -> list[int]:
    """The whole numbers that FIRST..LAST stands for: FIRST, doubled up to LAST. Raises UsageFault."""
    parts = text.split("..")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageFault(f"{option} {text}: must be FIRST..LAST, such as 128..8192")
    first, last = map(int, parts)
    if not 1 <= first <= last <= largest:
        raise UsageFault(f"{option} {text}: FIRST must be at least 1, LAST at least FIRST and at most {largest:,}")
    return [first << n for n in range((last // first).bit_length())]


def number(option: str, text: str, example: str, annotation: Any = float, least: float | None = None, most: float | None = None) -> float:
    """A number as a recipe's field of this type takes it, such as 25G, 40% or 5e-6; above 0 or at least `least`."""
    from mini_tf.recipe.values import Scalar, fit

    value = fit(Scalar(text), annotation)
    if not isinstance(value, float) or value < (least or 0) or (least is None and value == 0) or (most is not None and value > most):
        bound = "above 0" if least is None else f"of at least {least:g}"
        upper = "" if most is None else f" and at most {most:g}"
        raise UsageFault(f"{option} {text}: must be a number {bound}{upper}, such as {example}")
    return value
