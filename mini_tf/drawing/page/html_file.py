"""The HTML file of a page: data, style and script in one file that asks for nothing and runs only its own script.

The content security policy names the hashes of the script and the style, and Trusted Types forbid markup from strings.
Data is JSON without `<`, `>` and `&`, in a script that is not run; maps are numbers of 16 or 8 bits, all in one gzip
block, base64. Equal pages are equal bytes.
"""

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from mini_tf.drawing.labels import caption, label
from mini_tf.drawing.page.scenes import Page, PageMap, PageTable
from mini_tf.drawing.panel import Curves
from mini_tf.drawing.terminal import cell_text
from mini_tf.system.errors import UsageFault

FOLDER = Path(__file__).parent
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
    return (FOLDER / name).read_text(encoding="utf-8")


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
        yield from (caption(f"{one.panel.title or one.name}: {one.summary}") for one in scene.maps)
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
        for one in scene.maps:
            low, step, coded = quantize(one.panel.values, bits)
            codes.append(coded.tobytes())
            maps.append(_map(one, labels) | {"low": low, "step": step})
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
    return [caption(cell_text(cell)) for cell in cells]


def _curves(curves: Curves) -> dict[str, Any]:
    lines = {caption(name): [float(y) if np.isfinite(y) else None for y in line] for name, line in curves.lines.items()}
    return {
        "title": caption(curves.title),
        "x": [float(x) for x in curves.x],
        "xLabel": caption(curves.x_label),
        "yLabel": caption(curves.y_label),
        "lines": [{"name": name, "y": line} for name, line in lines.items()],
    }
