"""Pictures for a terminal: maps whose cells are colours, or without colour ten characters from blank to @; tables; sparklines.

Every function returns a rich `Text` no wider than `width`, from 40 on: what does not fit is left out and said, never wrapped.
Cells have their own background, so that they look alike in light and dark terminals.
"""

import math
from collections.abc import Sequence

from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from rich.text import Text

from mini_tf.drawing.labels import caption, label, shapes
from mini_tf.drawing.page import add_sentence, centred, closed, page, to_left, to_right
from mini_tf.drawing.panel import Cells, Curves, Fan, Marks, Panel, Scale
from mini_tf.drawing.ramp import ink_on, terminal_color

RAMP, SIGNED_RAMP = " .:-=+*#%@", " .:~=o*#%@"
BARS = "▁▂▃▄▅▆▇█"
_FRAMED, _RINGED, _FAINT, _BOTH = "x", "o", "?", "8"
"""Signs of cells that are pointed out."""
_TALLEST_HEAD = 8
"""Characters of a column's label, which is written downwards."""


def heat_map(panel: Panel, scale: Scale, *, colored: bool, width: int, values: bool = False, max_rows: int | None = None) -> Text:
    """A line a row, its label before it; the columns' labels stand above and are read downwards.

    `values` prints the numbers: hundredths, or whole numbers where the scale goes beyond 2; a point is exactly zero.
    Of too many columns the first are shown, and as many rows, or `max_rows`.
    """
    numbers = [[_number(value, scale) if values else "" for value in row] for row in panel.values.tolist()]
    named = label if panel.tokens else caption
    names = [named(row, max(8, width // 5)) for row in panel.rows]
    side = _widest(names)
    step = 1 + max([1, *map(_widest, numbers)])
    fitting = max(1, (width - side - 1) // step)
    n_rows, n_columns = min(len(names), max_rows or fitting), min(len(panel.columns), fitting)

    text = page(panel.title, width)
    for line in _heads([named(column) for column in panel.columns[:n_columns]], step):
        text.append(" " * (side + 1) + line + "\n")
    for i in range(n_rows):
        text.append(to_right(names[i], side) + " ")
        for j in range(n_columns):
            value = float(panel.values[i, j])
            written = to_right(numbers[i][j], step - 1) + " " if values or colored or math.isnan(value) else _shade(value, scale)
            text.append(_marked(written, panel.marks, (i, j)), _painted(value, scale) if colored else None)
        text.append("\n")
    _explain(text, scale, width, colored, values)
    add_sentence(text, panel.looks, width)
    if said := panel.marks.legend((_FRAMED, _RINGED, _FAINT)):
        add_sentence(text, said + (f", {_BOTH}: both" if panel.marks.framed & (panel.marks.ringed | panel.marks.faint) else ""), width)
    sides = ((n_rows, len(names), "rows"), (n_columns, len(panel.columns), "columns"))
    if cut := [f"{shown} of {total} {what}" for shown, total, what in sides if shown < total]:
        add_sentence(text, f"Only the first {' and '.join(cut)} are shown here; a wider terminal or a file has room for more.", width)
    return closed(text)


def head_grid(cells: Cells, *, colored: bool, width: int) -> Text:
    """A cell a head, with its letter; without colour the value stands behind the letter."""
    numbers = [[_number(value, cells.scale) for value in row] for row in cells.values.tolist()]
    names = [caption(row, max(8, width // 5)) for row in cells.rows]
    heads = [caption(column, 8) for column in cells.columns]
    side = _widest(names)
    step = max(3, 1 + _widest(heads), 0 if colored else 3 + max(map(_widest, numbers), default=0))
    shown = min(len(heads), max(1, (width - side - 1) // step))

    text = page(cells.title, width)
    text.append(" " * (side + 1) + "".join(centred(head, step) for head in heads[:shown]) + "\n")
    for i, name in enumerate(names):
        text.append(to_right(name, side) + " ")
        for j in range(shown):
            letter = label(cells.letters[i][j], 1)
            text.append(
                centred(letter, step) if colored else to_right(f"{letter} {numbers[i][j]:>{step - 3}}", step),
                _painted(float(cells.values[i, j]), cells.scale) if colored else None,
            )
        text.append("\n")
    _explain(text, cells.scale, width, colored, not colored)
    add_sentence(text, "  ".join(f"{label(letter, 1)} {meaning}".replace(" ", "\xa0") for letter, meaning in cells.legend.items()), width)
    if shown < len(heads):
        add_sentence(text, f"Only the first {shown} of {len(heads)} columns are shown here; a wider terminal has room for more.", width)
    return closed(text)


def fan(fan: Fan, *, colored: bool, width: int) -> Text:
    """Where one word looks in each head: a line a token, a column a head; > marks the word itself."""
    names = [">" * (place == fan.query_index) + label(token) for place, token in enumerate(fan.tokens)]
    panel = Panel(f"{fan.title}: {fan.query}", names, fan.heads, fan.weights.T, tokens=False)
    return heat_map(panel, Scale(label="weight"), colored=colored, width=width, max_rows=len(names))


def curves(curves: Curves, *, colored: bool, width: int) -> Text:
    """A line each, as bars of eight heights on one scale, with its first and its last value."""
    drawn = {name: [value for value in line if math.isfinite(value)] for name, line in curves.lines.items()}
    low, high = (edge((value for line in drawn.values() for value in line), default=0.0) for edge in (min, max))
    scale = Scale(low, high)
    ends = [f"{line[0] + 0.0:.4g} → {line[-1] + 0.0:.4g}" if line else "" for line in drawn.values()]
    names = [caption(name, width // 4) for name in curves.lines]
    side, room = _widest(names), max(1, width - _widest(names) - _widest(ends) - 2)

    text = page(curves.title, width)
    for name, line, end in zip(names, curves.lines.values(), ends, strict=True):
        bars = "".join(_bar(value, scale) for value in _thinned(line, room))
        text.append(to_right(name, side) + " ").append(bars, Style(color=Color.from_ansi(36)) if colored else None)
        text.append(f" {end}\n")
    over = f" over {curves.x_label} {curves.x[0]:g} to {curves.x[-1]:g}" if len(curves.x) else ""
    add_sentence(text, f"{curves.y_label}{over}: {BARS[0]} {low:.4g}, {BARS[-1]} {high:.4g}", width)
    return closed(text)


def table(headers: Sequence[str], rows: Sequence[Sequence[str | float | None]], *, colored: bool, width: int) -> Text:
    """Columns side by side, numbers to the right; a float has three decimals, None and NaN are blank.

    Tokens come as `labels.label` shows them. Too wide, the widest columns of words are cut, and then the last columns left out.
    """
    columns = [[header, *column] for header, column in zip(headers, zip(*rows, strict=True) if rows else [()] * len(headers), strict=True)]
    cells = [[caption(_written(cell)) for cell in column] for column in columns]
    is_words = [not all(_is_number(cell) for cell in column[1:] if cell) for column in cells]
    sizes = [_widest(column) for column in cells]
    shown = len(sizes)
    while sum(sizes[:shown]) + 2 * (shown - 1) > width:
        widest = max((i for i in range(shown) if is_words[i] and sizes[i] > 8), key=sizes.__getitem__, default=None)
        if widest is None:
            shown -= 1
        else:
            sizes[widest] -= 1
    text = page("", width)
    for number, line in enumerate(zip(*cells[:shown], strict=True)):
        placed = [(to_left if is_words[i] else to_right)(caption(cell, sizes[i]), sizes[i]) for i, cell in enumerate(line)]
        text.append("  ".join(placed) + "\n", Style(bold=True) if colored and number == 0 else None)
    if shown < len(sizes):
        add_sentence(text, f"Left out, for want of room: {', '.join(headers[shown:])}.", width)
    return closed(text)


def sentence(said: str, *, colored: bool = False, width: int) -> Text:
    """A sentence in as many lines as it needs; blanks that do not break (\\xa0) keep words together."""
    text = page("", width)
    add_sentence(text, said, width)
    return closed(text)


def line(said: str, *, whole: bool = False, colored: bool = False, width: int) -> Text:
    """A caption, cut to the line; `whole`: not cut, for those who search it or have it read aloud."""
    return closed(page(said, None if whole else width))


def _widest(words: Sequence[str]) -> int:
    return max(map(cell_len, words), default=0)


def _heads(columns: Sequence[str], step: int) -> list[str]:
    """The lines of the columns' labels, written downwards and standing on the map; each character as wide as a column."""
    standing = [shapes(column) for column in columns]
    standing = [letters if len(letters) <= _TALLEST_HEAD else [*letters[: _TALLEST_HEAD - 1], "⋮"] for letters in standing]
    height = max(map(len, standing), default=0)
    lines = zip(*([""] * (height - len(letters)) + letters for letters in standing), strict=True)
    return ["".join(" " * (step - 2) + to_left(letter, 2) for letter in line) for line in lines]


def _marked(written: str, marks: Marks, cell: tuple[int, int]) -> str:
    """The last character of a cell that is pointed out is its sign."""
    ringed = _RINGED if cell in marks.ringed else _FAINT if cell in marks.faint else ""
    sign = (_BOTH if ringed else _FRAMED) if cell in marks.framed else ringed
    return written[:-1] + sign if sign else written


def _painted(value: float, scale: Scale) -> Style | None:
    if math.isnan(value):
        return None
    color = terminal_color(value, scale)
    return Style(color=Color.from_rgb(*ink_on(color.get_truecolor())), bgcolor=color)


def _shade(value: float, scale: Scale) -> str:
    """Two characters: the darker the farther from low, or from zero on a diverging scale, where a minus stands for the first."""
    part = scale.fraction(value)
    ramp, far = (SIGNED_RAMP, abs(2 * part - 1)) if scale.diverging else (RAMP, part)
    shade = ramp[min(int(far * len(ramp)), len(ramp) - 1)]
    return f"-{shade}" if scale.diverging and part < 0.5 and shade != " " else 2 * shade


def _number(value: float, scale: Scale) -> str:
    if math.isnan(value):
        return ""
    return "." if value == 0 else f"{round(100 * value if scale.in_hundredths else value, 0) + 0.0:.0f}"


def _explain(text: Text, scale: Scale, width: int, colored: bool, values: bool) -> None:
    """The line that says what colours, characters and numbers mean."""
    unit = f" ({'hundredths' if scale.in_hundredths else 'whole numbers'})" if values else ""
    name = caption(scale.label, width - len(unit)) + unit
    text.append(name)
    if colored or not values:
        key = _colors(scale) if colored else Text(_characters(scale))
        text.append("\n" if cell_len(name) + 2 + key.cell_len > width else "  ").append(key)
    text.append("\n")


def _colors(scale: Scale) -> Text:
    low, high = scale.ends
    key = Text(f"{low:.3g} ")
    for place in range(18):
        key.append(" ", _painted(low + (high - low) * place / 17, scale))
    return key.append(f" {high:.3g}")


def _characters(scale: Scale) -> str:
    low, high = scale.ends
    return f"{low:.3g} '-@' .. 0 '{SIGNED_RAMP}' {high:.3g}" if scale.diverging else f"{low:.3g} '{RAMP}' {high:.3g}"


def _thinned(line: Sequence[float], room: int) -> list[float]:
    """At most `room` of the values, evenly spaced, the first and the last among them."""
    if len(line) <= room:
        return list(line)
    return [line[round(place * (len(line) - 1) / max(1, room - 1))] for place in range(room)]


def _bar(value: float, scale: Scale) -> str:
    return BARS[min(int(scale.fraction(value) * len(BARS)), len(BARS) - 1)] if math.isfinite(value) else " "


def _written(cell: str | float | None) -> str:
    if isinstance(cell, float):
        return "" if math.isnan(cell) else f"{round(cell, 3) + 0.0:.3f}"  # without + 0.0 a small negative number is -0.000
    return "" if cell is None else str(cell)


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "").rstrip("%"))
    except ValueError:
        return False
    return True


BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 32) -> str:
    """`values` as at most `width` blocks from the lowest to the highest, each the mean of its share of them; "" where there are none."""
    n = min(width, len(values))
    parts = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    means = [sum(part) / len(part) for part in parts]
    low = min(means, default=0.0)
    span = max(means, default=0.0) - low
    return "".join(BLOCKS[round((mean - low) / span * (len(BLOCKS) - 1)) if span else 0] for mean in means)
