"""Limits for untrusted input files: sizes, nesting depth, time.

No recipe can change them, only the environment variable MINITF_LIMITS:

    MINITF_LIMITS="line_bytes=64M tokenizer_seconds=600" minitf pretrain data.train=long-lines.jsonl
"""

import os
import re
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from mini_tf.system.errors import UsageFault, suggest

VARIABLE = "MINITF_LIMITS"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _limit(default: int, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Limits:
    """Every limit with its default; `meaning` in its metadata is shown in README and `minitf doctor`."""

    recipe_bytes: int = _limit(1 << 20, "largest recipe file")
    recipe_depth: int = _limit(16, "deepest nesting of a recipe")
    line_bytes: int = _limit(16 << 20, "longest line, or cell of a table, of a data file")
    parquet_ratio: int = _limit(256, "maximum bytes that a parquet file unpacks to per byte of it, above 1 GiB")
    stdin_bytes: int = _limit(16 << 30, "longest text of data.train=-, which is copied to the cache")
    prompt_bytes: int = _limit(1 << 20, "longest line of stdin or --input")
    tokenizer_bytes: int = _limit(64 << 20, "largest tokenizer file")
    tokenizer_tokens: int = _limit(16, "maximum number of tokens per byte of text")
    tokenizer_seconds: int = _limit(120, "maximum seconds to tokenize 4 MiB of text")
    record_bytes: int = _limit(16 << 20, "largest run.json, config.json, manifest or other small JSON file")
    header_bytes: int = _limit(8 << 20, "largest header of a safetensors file")
    memory_percent: int = _limit(95, "maximum percentage of free memory for a model and its optimizer")


def list_limits() -> list[tuple[str, int, str]]:
    """(name, default, meaning) of each limit."""
    return [(limit.name, int(limit.default), str(limit.metadata["meaning"])) for limit in fields(Limits)]  # type: ignore[arg-type]


def limits() -> Limits:
    """The limits in force; UsageFault if $MINITF_LIMITS is invalid."""
    return _read(os.environ.get(VARIABLE, ""))


@cache
def _read(text: str) -> Limits:
    names = [name for name, *_ in list_limits()]
    values: dict[str, int] = {}
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        match = re.fullmatch(r"([0-9]{1,15})([KMG]?)", value)
        if name not in names:
            hint = suggest(name, names, f"use one of {', '.join(names)}")
            raise UsageFault(f"{VARIABLE}: no such limit {name[:40]!r}", hint=hint)
        if match is None or int(match[1]) == 0:
            raise UsageFault(f"{VARIABLE}: {name} must be a whole number from 1 such as 64M, got {value[:40]!r}")
        values[name] = int(match[1]) * _UNITS[match[2]]
    return Limits(**values)


def format_bytes(bytes_: int) -> str:
    """16777216 as "16 MiB"."""
    unit, factor = next(
        (u, f)
        for u, f in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("bytes", 1))
        if bytes_ % f == 0 and bytes_ >= f
    )
    return f"{bytes_ // factor} {unit}"
