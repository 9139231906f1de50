"""Pages for a browser: one HTML file of maps, tables and curves that asks for nothing and runs only its own script.

A page has scenes (a text, a checkpoint, a run); one or two are open at a time. The content security policy names the
hashes of the script and the style, and Trusted Types forbid markup from strings. Data is JSON without `<`, `>` and `&`,
in a script that is not run; maps are numbers of 16 or 8 bits, all in one gzip block, base64. Equal pages are equal
bytes.
"""

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from html import escape
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mini_tf.drawing import terminal
from mini_tf.drawing.labels import caption, label
from mini_tf.drawing.panel import Curves, Panel, PanelGrid, Scale
from mini_tf.system.errors import UsageFault

REMEDIES = "give fewer texts, or shorter ones, or write -o FILE.json"

Cell = str | float | None


class PageTable(NamedTuple):
    """A table, as `terminal.table` shows it; without headers, paragraphs: one cell a row."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, eq=False)
class PageMap:
    """A map. name: in the address of the page; the other fields are of an attention head.

    summary: a sentence about it.
    """

    panel: Panel
    name: str
    kind: str = ""
    layer: int | None = None
    head: int | None = None
    role: str = ""
    entropy: float | None = None
    summary: str = ""


@dataclass(frozen=True, eq=False)
class Scene:
    """Maps and tables. at: what tells it from other scenes, such as {"text": "a cat", "step": "40"}."""

    at: Mapping[str, str]
    maps: Sequence[PageMap] = ()
    tables: Sequence[PageTable] = ()


@dataclass(frozen=True, eq=False)
class Page:
    """facts: lines below the title. row, column: what a row and a column of a map is called.

    slider: the key of `Scene.at` that is chosen by a slider, a number; opens: the part of the address to open with;
    remedies: three ways to a smaller page.
    """

    title: str
    scenes: Sequence[Scene]
    scale: Scale = field(default_factory=Scale)
    facts: Sequence[str] = ()
    notes: Sequence[str] = ()
    tables: Sequence[PageTable] = ()
    curves: Sequence[Curves] = ()
    row: str = "row"
    column: str = "column"
    slider: str = ""
    opens: str = ""
    remedies: str = REMEDIES


Points = Mapping[float, float]
"""y by x."""


def curves_of(title: str, x_label: str, points: Mapping[str, Points]) -> Curves:
    """Lines that have points of their own; without those that have none."""
    x = sorted({at for line in points.values() for at in line})
    lines = {name: [line.get(at, nan) for at in x] for name, line in points.items() if line}
    return Curves(title, x, x_label, title, lines)


def page_of(title: str, figure: Any, pictures: Iterable[Callable[..., Any]], notes: Sequence[str] = ()) -> Page:
    """The page of a view: the maps of its figure, and the tables, sentences and curves that it has for the terminal.

    pictures: functions of `drawing.terminal` with their arguments bound. title: unless the figure has one.
    """
    grid = figure if isinstance(figure, PanelGrid) else PanelGrid([], Scale(), title)
    maps = [PageMap(panel, f"map{number}", summary=panel.note) for number, panel in enumerate(grid.panels, 1)]
    bound = [picture for picture in pictures if isinstance(picture, partial)]
    curves: list[Curves] = [picture.args[0] for picture in bound if picture.func is terminal.curves]
    facts = [grid.text] if grid.text else []
    return Page(grid.title, [Scene({}, maps)], grid.scale, facts, notes, [*_tables(bound)], curves)


def _tables(pictures: Iterable[partial[Any]]) -> Iterator[PageTable]:
    for picture in pictures:
        if picture.func is terminal.table:
            headers, rows = picture.args
            yield PageTable("", headers, rows)
        elif picture.func in (terminal.sentence, terminal.line) and picture.args[0]:
            yield PageTable("", (), [picture.args])


ASSETS = Path(__file__).parent / "page"
SCRIPTS = ("numbers.js", "draw.js", "figures.js", "elements.js", "page.js")
MOST_MEGABYTES = 10
VERSION = 1


def page_file(page: Page) -> bytes:
    """The file, with 16 bits a number, or with 8 if that is too large. UsageFault if that is, too."""
    size = 0.0
    for bits in (16, 8):
        data = _fill(page, bits)
        if (size := len(data) / 1e6) <= MOST_MEGABYTES:
            return data
    raise UsageFault(f"the page would have {size:.0f} MB; at most {MOST_MEGABYTES} MB", hint=page.remedies)


def _fill(page: Page, bits: int) -> bytes:
    script, style = "".join(map(_asset, SCRIPTS)), _asset("page.css")
    parts = {
        "title": escape(caption(page.title)),
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "plain": "".join(f"<p>{escape(line)}</p>" for line in _plain_lines(page)),
        "contents": in_script(contents(page, bits)),
    }
    # In one pass: a token may look like a marker.
    return re.sub(r"\{(\w+)\}", lambda marker: parts[marker[1]], _asset("frame.html")).encode()


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """As a content security policy names it."""
    return b64encode(sha256(text.encode()).digest()).decode()


def in_script(value: Any) -> str:
    """JSON in ASCII that ends no script and begins no comment or tag."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _plain_lines(page: Page) -> Iterator[str]:
    """What a browser without scripts shows."""
    yield from (caption(line) for line in (page.title, *page.facts, *page.notes))
    yield "The maps need JavaScript, which this browser has switched off. Measures without it:"
    for scene in page.scenes:
        yield from (caption(text) for text in scene.at.values())
        yield from (caption(f"{page_map.panel.title or page_map.name}: {page_map.summary}") for page_map in scene.maps)
    for table in (*page.tables, *(table for scene in page.scenes for table in scene.tables)):
        yield from (" | ".join(_cells(row)) for row in (table.headers, *table.rows))


def contents(page: Page, bits: int) -> dict[str, Any]:
    """The data of the page. Numbers of a map are `low + (code - 1) * step`, code 0 is a blank cell.

    `error` is the largest difference of any of them from the true number: half of the largest step.
    """
    labels: dict[tuple[str, ...], int] = {}
    codes, scenes, error = list[bytes](), list[dict[str, Any]](), 0.0
    for scene in page.scenes:
        maps = []
        for page_map in scene.maps:
            low, step, coded = quantize(page_map.panel.values, bits)
            codes.append(coded.tobytes())
            maps.append(_map(page_map, labels) | {"low": low, "step": step})
            error = max(error, step / 2)
        at = {name: caption(text) for name, text in scene.at.items()}
        scenes.append({"at": at, "maps": maps, "tables": list(map(_table, scene.tables))})
    scale = page.scale
    return {
        "format": "minitf-page",
        "version": VERSION,
        "title": caption(page.title),
        **{name: [caption(line) for line in getattr(page, name)] for name in ("facts", "notes")},
        **{name: getattr(page, name) for name in ("row", "column", "slider", "opens")},
        "scale": {"low": scale.ends[0], "high": scale.ends[1], "diverging": scale.diverging, "label": scale.label},
        "labels": list(labels),
        "scenes": scenes,
        "tables": list(map(_table, page.tables)),
        "curves": list(map(_curves, page.curves)),
        "bits": bits,
        "error": error,
        "codes": b64encode(gzip.compress(b"".join(codes), 6, mtime=0)).decode(),
    }


def quantize(values: np.ndarray, bits: int) -> tuple[float, float, np.ndarray]:
    """low, step and the code of each value; values that are not finite are blank."""
    finite = np.isfinite(values)
    low, high = (float(values[finite].min()), float(values[finite].max())) if finite.any() else (0.0, 0.0)
    step = (high - low) / (2**bits - 2)
    codes = np.ones(values.shape) if not step else 1 + np.rint((np.where(finite, values, low) - low) / step)
    return low, step, np.where(finite, codes, 0).astype(f"<u{bits // 8}")


def _map(page_map: PageMap, labels: dict[tuple[str, ...], int]) -> dict[str, Any]:
    panel = page_map.panel
    shown = label if panel.tokens else caption
    rows, columns = (
        labels.setdefault(tuple(shown(text) for text in texts), len(labels)) for texts in (panel.rows, panel.columns)
    )
    marks = [sorted(cells) for cells in (panel.marks.squares, panel.marks.rings, panel.marks.dotted_rings)]
    return {
        "name": page_map.name,
        "title": caption(panel.title),
        "summary": caption(page_map.summary),
        "rows": rows,
        "columns": columns,
        **{name: getattr(page_map, name) for name in ("kind", "layer", "head", "role", "entropy")},
        **({"marks": marks, "meaning": panel.marks.legend(("□", "○", "◌"))} if any(marks) else {}),
    }


def _table(table: PageTable) -> dict[str, Any]:
    title, headers, rows = table
    return {"title": caption(title), "headers": _cells(headers), "rows": [_cells(row) for row in rows]}


def _cells(cells: Sequence[str | float | None]) -> list[str]:
    return [caption(terminal.cell_text(cell)) for cell in cells]


def _curves(curves: Curves) -> dict[str, Any]:
    lines = {caption(name): [float(y) if np.isfinite(y) else None for y in line] for name, line in curves.lines.items()}
    return {
        "title": caption(curves.title),
        "x": [float(x) for x in curves.x],
        "xLabel": caption(curves.x_label),
        "yLabel": caption(curves.y_label),
        "lines": [{"name": name, "y": line} for name, line in lines.items()],
    }
