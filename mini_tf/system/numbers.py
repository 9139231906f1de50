"""Numbers with units: k, M, G; bytes; seconds and minutes; ranges of options."""

from collections.abc import Sequence

from mini_tf.system.errors import UsageFault


def short(number: float) -> str:
    """1234567 -> "1.23 M"."""
    number, unit = _scaled(number, 1000, ("", "k", "M", "G", "T", "P", "E"))
    return f"{number:.3g} {unit}".rstrip()


def counted(number: int, noun: str) -> str:
    """1 -> "1 text", 1234 -> "1,234 texts"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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
