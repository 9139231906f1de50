"""Numbers and ranges in options, written as in a recipe."""

from typing import Any

from mini_tf.system.errors import UsageFault


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
