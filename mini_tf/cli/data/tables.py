"""Rows as tables for a terminal: a line a place."""

from itertools import zip_longest
from typing import Any


def pair_table(row: dict[str, Any], n_rows: int) -> str:
    """The source beside the target; place n of the one has nothing to do with place n of the other."""
    sides = {"source": row["source"], "target": row}
    told = [
        f"{name} {len(side['places'])} tokens" + (f" and {side['padding']} of padding" if side["padding"] else "")
        for name, side in sides.items()
    ]
    lines = [f"row {row['row']} of {n_rows} (counted from 0): {', '.join(told)}"]
    lines += [f"{'place':>7}  {'source':<20} {'reads':<20} is asked for"]
    none: dict[str, Any] = {}
    for place, (source, target) in enumerate(zip_longest(row["source"]["places"], row["places"], fillvalue=none)):
        cells = [
            "" if (cell := side.get(name)) is None else repr(cell)
            for side, name in ((source, "reads"), (target, "reads"), (target, "target"))
        ]
        lines.append(f"{place:>7}  {cells[0]:<20} {cells[1]:<20} {cells[2]}".rstrip())
    return "\n".join(lines)


def table(row: dict[str, Any], n_rows: int) -> str:
    lines = [
        f"row {row['row']} of {n_rows} (counted from 0): {len(row['places'])} tokens"
        + (f" and {row['padding']} of padding" if row["padding"] else "")
    ]
    lines += [f"{'place':>7} {'document':>8}  {'reads':<20} {'is asked for':<20} {'original':<20}".rstrip()]
    for place in row["places"]:
        cells = ["" if place[name] is None else repr(place[name]) for name in ("reads", "target", "replaced")]
        lines.append(f"{place['place']:>7} {place['document']:>8}  {cells[0]:<20} {cells[1]:<20} {cells[2]:<20}".rstrip())
    return "\n".join(lines)


def label_table(row: dict[str, Any], n_rows: int) -> str:
    """An example, with its label beside the token where it is asked for, and what is hidden from the model."""
    lines = [
        f"row {row['row']} of {n_rows} (counted from 0): {len(row['places'])} tokens"
        + (f" and {row['padding']} of padding" if row["padding"] else "")
    ]
    hides = any(place["replaced"] is not None for place in row["places"])
    lines += [f"{'place':>7}  {'reads':<20} {'is asked for':<20} {'original' if hides else ''}".rstrip()]
    for place in row["places"]:
        cells = ["" if place[name] is None else repr(place[name]) for name in ("reads", "target", "replaced")]
        lines.append(f"{place['place']:>7}  {cells[0]:<20} {cells[1]:<20} {cells[2]}".rstrip())
    return "\n".join(lines)
