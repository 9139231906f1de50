"""What share of the mutants the tests find, and what the others are."""

import difflib
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from .run import FOUND, Results
from .sample import Mutant

REASONS = Path(__file__).with_name("equivalent.yaml")


class Reasons:
    """The list of mutants that change nothing a test could or should see, each with the reason; matched by text."""

    def __init__(self, entries: list[dict[str, str]]) -> None:
        self.entries = entries

    @classmethod
    def read(cls, file: Path = REASONS) -> "Reasons":
        return cls(yaml.safe_load(file.read_text()) or [])

    def of(self, mutant: Mutant) -> str | None:
        return next((entry["reason"] for entry in self.entries if _same(entry, mutant)), None)

    def idle(self, mutants: list[Mutant]) -> list[dict[str, str]]:
        """Entries that fit no mutant."""
        return [entry for entry in self.entries if not any(_same(entry, mutant) for mutant in mutants)]


def _same(entry: dict[str, str], mutant: Mutant) -> bool:
    theirs = entry["file"], _plain(entry["before"]), _plain(entry["after"])
    return theirs == (mutant.file, _plain(mutant.before), _plain(mutant.after))


def _plain(text: str) -> str:
    return "".join(text.split())


def wilson(found: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927), which holds near 1 too."""
    share, squared = found / n, z * z
    middle = (share + squared / (2 * n)) / (1 + squared / n)
    half = z * math.sqrt(share * (1 - share) / n + squared / (4 * n * n)) / (1 + squared / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def table(packages: dict[str, list[Mutant]], results: Results, reasons: Reasons) -> str:
    rows = [("package", "sampled", "run", "found", "by time", "listed", "survived", "found or listed", "95 % interval")]
    total: Counter[str] = Counter()
    for package, mutants in packages.items():
        counts = Counter(_standing(mutant, results.of(mutant), reasons) for mutant in mutants)
        total += counts
        rows.append(_row(package, counts))
    return "\n".join("  ".join(f"{word:>12}" for word in row) for row in [*rows, _row("all", total)])


def _standing(mutant: Mutant, known: dict[str, Any] | None, reasons: Reasons) -> str:
    if known and known["outcome"] in FOUND:
        return str(known["outcome"])
    return "listed" if reasons.of(mutant) else known["outcome"] if known else "left"


def _row(name: str, counts: Counter[str]) -> tuple[str, ...]:
    n = sum(counts.values())
    run = n - counts["left"]
    found = sum(counts[word] for word in FOUND)
    good = found + counts["listed"]
    share = (f"{good / run:.1%}", "{:.1%} to {:.1%}".format(*wilson(good, run))) if run else ("", "")
    return (name, *map(str, (n, run, found, counts["timeout"], counts["listed"], counts["survived"])), *share)


def _survivors(
    packages: dict[str, list[Mutant]], results: Results, reasons: Reasons
) -> Iterator[tuple[Mutant, dict[str, Any]]]:
    for mutants in packages.values():
        for mutant in sorted(mutants, key=lambda mutant: (mutant.file, mutant.line)):
            if (known := results.of(mutant)) and _standing(mutant, known, reasons) == "survived":
                yield mutant, known


def diffs(packages: dict[str, list[Mutant]], results: Results, reasons: Reasons, root: Path) -> str:
    """What survived, to read."""
    shown = [
        f"{_diff(mutant, root)}  survived {len(known['tried'])} tests\n"
        for mutant, known in _survivors(packages, results, reasons)
    ]
    return "\n".join(shown)


def entries(packages: dict[str, list[Mutant]], results: Results, reasons: Reasons) -> str:
    """What survived, to be given reasons."""
    words = ("file", "before", "after", "reason")
    found = [(mutant.file, mutant.before, mutant.after, "") for mutant, _ in _survivors(packages, results, reasons)]
    listed = [dict(zip(words, values, strict=True)) for values in found]
    return yaml.safe_dump(listed, sort_keys=False, allow_unicode=True, width=1000) if listed else ""


def _diff(mutant: Mutant, root: Path) -> str:
    old = (root / mutant.file).read_text().splitlines(keepends=True)
    diff = difflib.unified_diff(old, mutant.source.splitlines(keepends=True), n=1)
    return f"{mutant.file}:{mutant.line}\n" + "".join(line for line in diff if not line.startswith(("---", "+++")))
