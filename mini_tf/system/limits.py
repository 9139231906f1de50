"""What a file may ask of the machine that reads it: the largest sizes, the deepest nesting, the longest times.

They belong to whoever gives the command and never to a file, so no recipe can raise them; $MINITF_LIMITS does:

    MINITF_LIMITS="line_bytes=64M tokenizer_seconds=600" minitf pretrain data.train=long-lines.jsonl
"""

import os
import re
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from typing import Any

from mini_tf.system.errors import UsageFault

VARIABLE = "MINITF_LIMITS"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _limit(default: int, what: str) -> Any:
    return field(default=default, metadata={"what": what})


@dataclass(frozen=True)
class Limits:
    """Every limit with its default; `what` in its metadata is its meaning, for README and `minitf doctor`."""

    recipe_bytes: int = _limit(1 << 20, "largest recipe file")
    recipe_depth: int = _limit(16, "deepest nesting of a recipe")
    line_bytes: int = _limit(16 << 20, "longest line, or cell of a table, of a data file")
    prompt_bytes: int = _limit(1 << 20, "longest line of prompts or texts on stdin or in --input")
    tokenizer_bytes: int = _limit(64 << 20, "largest tokenizer file")
    tokenizer_tokens: int = _limit(16, "most tokens that a tokenizer may make of a byte of text")
    tokenizer_seconds: int = _limit(120, "longest time a tokenizer may take for 4 MiB of text")
    record_bytes: int = _limit(16 << 20, "largest run.json, config.json, manifest or other small JSON file")
    header_bytes: int = _limit(8 << 20, "largest header of a safetensors file")
    memory_percent: int = _limit(95, "share of the free memory that a model and its optimizer may need")


def listed() -> list[tuple[str, int, str]]:
    """(name, default, meaning) of each."""
    return [(one.name, int(one.default), str(one.metadata["what"])) for one in fields(Limits)]  # type: ignore[arg-type]


def limits() -> Limits:
    """Those in force here; UsageFault where $MINITF_LIMITS cannot be read."""
    return _read(os.environ.get(VARIABLE, ""))


@cache
def _read(text: str) -> Limits:
    names = [name for name, *_ in listed()]
    given: dict[str, int] = {}
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        found = re.fullmatch(r"([0-9]{1,15})([KMG]?)", value)
        if name not in names:
            near = get_close_matches(name, names, n=1)
            raise UsageFault(
                f"{VARIABLE}: no such limit {name[:40]!r}", hint=f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            )
        if found is None or int(found[1]) == 0:
            raise UsageFault(f"{VARIABLE}: {name} must be a whole number from 1 such as 64M, got {value[:40]!r}")
        given[name] = int(found[1]) * _UNITS[found[2]]
    return Limits(**given)


def spoken(bytes_: int) -> str:
    """A limit of bytes for a message: 16 MiB."""
    unit, factor = next(
        (u, f) for u, f in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("bytes", 1)) if bytes_ % f == 0 and bytes_ >= f
    )
    return f"{bytes_ // factor} {unit}"
