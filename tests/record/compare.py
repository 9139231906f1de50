"""What differs between two records, a line each: which run or command, in what, and where first; milliseconds."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from .normalise import normalised

MOST, DIMS = 4, 100
"""Names or values shown of one difference, and characters of a value."""


def other_machine(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Of what the two machines differ in: then nothing else need be equal."""
    keys = sorted({*before, *after})
    return [f"{key}: {before.get(key)} -> {after.get(key)}" for key in keys if before.get(key) != after.get(key)]


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], partial: bool = False
) -> Iterator[tuple[str, str]]:
    """The name of a run or command, and what of it differs. partial: what only one of the records has does not
    count.
    """
    for section, word in (("runs", "run"), ("commands", "command")):
        ours, theirs = before[section], after[section]
        for name in dict.fromkeys([*ours, *theirs]):
            if name in ours and name in theirs:
                yield from ((f"{word} {name}", told) for told in _of_part(ours[name], theirs[name]))
            elif not partial:
                yield f"{word} {name}", "only in the record before" if name in ours else "only in the record after"


def _of_part(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if len(before["said"]) != len(after["said"]):
        yield f"{len(before['said'])} command lines -> {len(after['said'])}"
    for ours, theirs in zip(before["said"], after["said"], strict=False):
        if ours["exit_code"] != theirs["exit_code"]:
            yield f"`{theirs['line']}`: exit code {ours['exit_code']} -> {theirs['exit_code']}"
        for stream in ("stdout", "stderr"):
            if told := _of_text(normalised(ours[stream]), normalised(theirs[stream])):
                yield f"`{theirs['line']}`: {stream} {told}"
    for file in dict.fromkeys([*before["files"], *after["files"]]):
        if told := _of_file(before["files"].get(file), after["files"].get(file)):
            yield f"{file}: {told}"


def _of_file(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    if before is None or after is None:
        return "is new" if before is None else "is gone"
    if before.get("sha256") == after.get("sha256"):
        return ""
    if "tensors" in before and "tensors" in after:
        return _of_tensors(before["tensors"], after["tensors"])
    return _of_text(before.get("text", ""), after.get("text", "")) or "other bytes"


def _of_tensors(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    both = [name for name in before if name in after]
    changed = [name for name in both if before[name] != after[name]]
    found = {
        f"{len(changed)} of {len(both)} tensors differ": changed,
        "gone": [name for name in before if name not in after],
        "new": [name for name in after if name not in before],
    }
    return (
        "; ".join(f"{what}: {_listed(names)}" for what, names in found.items() if names) or "equal tensors, other bytes"
    )


def _of_text(before: str, after: str) -> str:
    """The first line that differs and how many do, "" where none does."""
    pairs = list(zip_longest(before.splitlines(), after.splitlines()))
    changed = [number for number, (ours, theirs) in enumerate(pairs) if ours != theirs]
    if not changed:
        return "" if before == after else "ends otherwise"
    first = changed[0]
    more = f" ({len(changed)} of {len(pairs)} lines differ)" if len(changed) > 1 else ""
    return f"line {first + 1}: {_of_line(*pairs[first])}{more}"


def _of_line(before: str | None, after: str | None) -> str:
    """Of two lines of JSON the values that differ, of others the text from a little before the first difference."""
    if before is None or after is None:
        return f"is new: {_short(after or '')}" if before is None else f"is gone: {_short(before)}"
    ours, theirs = leaves(before), leaves(after)
    if ours and theirs:
        changed = [key for key in dict.fromkeys([*ours, *theirs]) if ours.get(key) != theirs.get(key)]
        return _listed([f"{key} {ours.get(key, 'absent')} -> {theirs.get(key, 'absent')}" for key in changed])
    first = next(
        (at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other),
        min(len(before), len(after)),
    )
    return f"{_short(before, first)} -> {_short(after, first)}"


def leaves(line: str) -> dict[str, str]:
    """The values of a line of JSON by their dotted keys; nothing where it is no JSON object."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return dict(_flat("", value)) if isinstance(value, dict) else {}


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    below = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for name, item in below:
        yield from _flat(f"{key}.{name}" if key else str(name), item)
    if not below:
        yield key, json.dumps(value)


def _short(text: str, first: int = 0) -> str:
    start = max(0, first - DIMS // 3)
    return repr(("..." if start else "") + text[start : start + DIMS] + ("..." if start + DIMS < len(text) else ""))


def _listed(names: Sequence[str]) -> str:
    shown = [name if len(name) <= 2 * DIMS else name[: 2 * DIMS] + "..." for name in names[:MOST]]
    return ", ".join(shown) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")
