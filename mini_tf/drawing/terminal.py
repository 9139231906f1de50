"""Pictures for the terminal: heat maps in color, or with ten characters from space to @; tables; sparklines.

Functions return a rich `Text` of at most `width` cells, from 40 on; what does not fit is left out with a note. Cells
have a background color, so they look the same in light and dark terminals.
"""

import math
from collections.abc import Sequence

from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from rich.text import Text

from mini_tf.drawing.labels import caption, label, visible_characters
from mini_tf.drawing.look import text_color_on
from mini_tf.drawing.panel import Curves, HeadGrid, Marks, Panel, QueryWeights, Scale
from mini_tf.drawing.text_layout import add_sentence, center, finish, new_text, pad_left, pad_right

CHARACTERS, SIGNED_CHARACTERS = " .:-=+*#%@", " .:~=o*#%@"
BARS = "▁▂▃▄▅▆▇█"
_SQUARE, _RING, _DOTTED_RING, _BOTH = "x", "o", "?", "8"
"""Signs of marked cells."""
_SEQUENTIAL = (53, 55, 24, 30, 36, 77, 148, 220, 226)
_DIVERGING = (25, 32, 75, 153, 255, 224, 210, 167, 124)
"""Nine of the 256 standard colors, safe for color-blind readers: violet to yellow with increasing luminance, and blue
to red, lightest at zero.
"""
_MAX_HEADER_HEIGHT = 8
"""Maximum length of a column label, which is cell vertically."""


def heat_map(
    panel: Panel, scale: Scale, *, colored: bool, width: int, values: bool = False, max_rows: int | None = None
) -> Text:
    """A line per row of the map, with labels on the left and vertical labels above.

    values: print numbers in hundredths, or whole numbers if the scale exceeds 2; "." is exactly zero. If columns do not
    fit, the first ones are shown, and as many rows, or `max_rows`.
    """
    numbers = [[_number(value, scale) if values else "" for value in row] for row in panel.values.tolist()]
    named = label if panel.tokens else caption
    names = [named(row, max(8, width // 5)) for row in panel.rows]
    label_width = _widest(names)
    step = 1 + max([1, *map(_widest, numbers)])
    fitting = max(1, (width - label_width - 1) // step)
    n_rows, n_columns = min(len(names), max_rows or fitting), min(len(panel.columns), fitting)

    text = new_text(panel.title, width)
    for line in _vertical_labels([named(column) for column in panel.columns[:n_columns]], step):
        text.append(" " * (label_width + 1) + line + "\n")
    for i in range(n_rows):
        text.append(pad_left(names[i], label_width) + " ")
        for j in range(n_columns):
            value = float(panel.values[i, j])
            is_number = values or colored or math.isnan(value)
            cell = pad_left(numbers[i][j], step - 1) + " " if is_number else _shade(value, scale)
            text.append(_add_mark(cell, panel.marks, (i, j)), _style_of(value, scale) if colored else None)
        text.append("\n")
    _add_legend(text, scale, width, colored, values)
    add_sentence(text, panel.note, width)
    marks = panel.marks
    if legend := marks.legend((_SQUARE, _RING, _DOTTED_RING)):
        both = f", {_BOTH}: both" if marks.squares & (marks.rings | marks.dotted_rings) else ""
        add_sentence(text, legend + both, width)
    sides = ((n_rows, len(names), "rows"), (n_columns, len(panel.columns), "columns"))
    if cut := [f"{shown} of {total} {axis}" for shown, total, axis in sides if shown < total]:
        first = f"Only the first {' and '.join(cut)} are shown"
        add_sentence(text, f"{first}; a wider terminal or a file shows more.", width)
    return finish(text)


def head_grid(cells: HeadGrid, *, colored: bool, width: int) -> Text:
    """A cell per head with its letter, followed by the value if there is no color."""
    numbers = [[_number(value, cells.scale) for value in row] for row in cells.values.tolist()]
    names = [caption(row, max(8, width // 5)) for row in cells.rows]
    heads = [caption(column, 8) for column in cells.columns]
    label_width = _widest(names)
    step = max(3, 1 + _widest(heads), 0 if colored else 3 + max(map(_widest, numbers), default=0))
    shown = min(len(heads), max(1, (width - label_width - 1) // step))

    text = new_text(cells.title, width)
    text.append(" " * (label_width + 1) + "".join(center(head, step) for head in heads[:shown]) + "\n")
    for i, name in enumerate(names):
        text.append(pad_left(name, label_width) + " ")
        for j in range(shown):
            letter = label(cells.letters[i][j], 1)
            if colored:
                text.append(center(letter, step), _style_of(float(cells.values[i, j]), cells.scale))
            else:
                text.append(pad_left(f"{letter} {numbers[i][j]:>{step - 3}}", step))
        text.append("\n")
    _add_legend(text, cells.scale, width, colored, not colored)
    legend = [f"{label(letter, 1)} {meaning}".replace(" ", "\xa0") for letter, meaning in cells.legend.items()]
    add_sentence(text, "  ".join(legend), width)
    if shown < len(heads):
        first = f"Only the first {shown} of {len(heads)} columns are shown"
        add_sentence(text, f"{first}; a wider terminal shows more.", width)
    return finish(text)


def query_weights(data: QueryWeights, *, colored: bool, width: int) -> Text:
    """Attention weights of one query: a line per token, a column per head; > marks the query."""
    names = [">" * (index == data.query_index) + label(token) for index, token in enumerate(data.tokens)]
    heads = [" ".join(head) for head in data.heads]
    panel = Panel(f"{data.title}: {data.query}", names, heads, data.weights.T, tokens=False)
    return heat_map(panel, Scale(), colored=colored, width=width, max_rows=len(names))


def curves(curves: Curves, *, colored: bool, width: int) -> Text:
    """A sparkline per curve on a common scale, with the first and last value."""
    drawn = {name: [value for value in line if math.isfinite(value)] for name, line in curves.lines.items()}
    low, high = (edge((value for line in drawn.values() for value in line), default=0.0) for edge in (min, max))
    scale = Scale(low, high)
    ends = [f"{line[0] + 0.0:.4g} → {line[-1] + 0.0:.4g}" if line else "" for line in drawn.values()]
    names = [caption(name, width // 4) for name in curves.lines]
    label_width, room = _widest(names), max(1, width - _widest(names) - _widest(ends) - 2)

    text = new_text(curves.title, width)
    for name, line, end in zip(names, curves.lines.values(), ends, strict=True):
        bars = "".join(_bar(value, scale) for value in _subsample(line, room))
        color = Style(color=Color.from_ansi(36)) if colored else None
        text.append(pad_left(name, label_width) + " ").append(bars, color).append(f" {end}\n")
    over = f" over {curves.x_label} {curves.x[0]:g} to {curves.x[-1]:g}" if len(curves.x) else ""
    add_sentence(text, f"{curves.y_label}{over}: {BARS[0]} {low:.4g}, {BARS[-1]} {high:.4g}", width)
    return finish(text)


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str | float | None]], *, keep: int = 0, colored: bool, width: int
) -> Text:
    """A table with right-aligned numbers; floats have three decimals, None and NaN are blank.

    Text is shown as by `labels.caption`. If too wide, the widest text columns are truncated, the first `keep` after the
    others, then the last columns left out.
    """
    columns = zip(headers, *rows, strict=True)
    cells = [[caption(cell_text(cell)) for cell in column] for column in columns]
    is_words = [not all(_is_number(cell) for cell in column[1:] if cell) for column in cells]
    sizes = [_widest(column) for column in cells]
    shown = len(sizes)
    while sum(sizes[:shown]) + 2 * (shown - 1) > width:
        long = (i for i in range(shown) if is_words[i] and sizes[i] > 8)
        widest = max(long, key=lambda i: (i >= keep, sizes[i]), default=None)
        if widest is None:
            shown -= 1
        else:
            sizes[widest] -= 1
    text = new_text("", width)
    for number, line in enumerate(zip(*cells[:shown], strict=True)):
        places = ((caption(cell, size), size) for cell, size in zip(line, sizes, strict=False))
        placed = [(pad_right if is_words[i] else pad_left)(*place) for i, place in enumerate(places)]
        text.append("  ".join(placed) + "\n", Style(bold=True) if colored and number == 0 else None)
    if shown < len(sizes):
        add_sentence(text, f"Columns left out: {', '.join(headers[shown:])}.", width)
    return finish(text)


def sentence(content: str, *, colored: bool = False, width: int) -> Text:
    """A wrapped sentence; non-breaking spaces (\\xa0) keep words together."""
    text = new_text("", width)
    add_sentence(text, content, width)
    return finish(text)


def line(content: str, *, whole: bool = False, colored: bool = False, width: int) -> Text:
    """A caption, truncated to the line; `whole`: not truncated."""
    return finish(new_text(content, None if whole else width))


def _widest(words: Sequence[str]) -> int:
    return max(map(cell_len, words), default=0)


def _vertical_labels(columns: Sequence[str], step: int) -> list[str]:
    """Lines of the vertical, bottom-aligned column labels; each column is `step` wide."""
    standing = [visible_characters(column) for column in columns]
    standing = [
        letters if len(letters) <= _MAX_HEADER_HEIGHT else [*letters[: _MAX_HEADER_HEIGHT - 1], "⋮"]
        for letters in standing
    ]
    height = max(map(len, standing), default=0)
    lines = zip(*([""] * (height - len(letters)) + letters for letters in standing), strict=True)
    return ["".join(" " * (step - 2) + pad_right(letter, 2) for letter in line) for line in lines]


def _add_mark(content: str, marks: Marks, cell: tuple[int, int]) -> str:
    """The cell with its sign as last character, if it is marked."""
    ring = _RING if cell in marks.rings else _DOTTED_RING if cell in marks.dotted_rings else ""
    sign = (_BOTH if ring else _SQUARE) if cell in marks.squares else ring
    return content[:-1] + sign if sign else content


def _style_of(value: float, scale: Scale) -> Style | None:
    if math.isnan(value):
        return None
    color = terminal_color(value, scale)
    return Style(color=Color.from_rgb(*text_color_on(color.get_truecolor())), bgcolor=color)


def terminal_color(value: float, scale: Scale) -> Color:
    colors = _DIVERGING if scale.diverging else _SEQUENTIAL
    return Color.from_ansi(colors[min(int(scale.fraction(value) * len(colors)), len(colors) - 1)])


def _shade(value: float, scale: Scale) -> str:
    """Two characters, denser with the distance from low, or from zero if diverging, with a minus if negative."""
    part = scale.fraction(value)
    ramp, far = (SIGNED_CHARACTERS, abs(2 * part - 1)) if scale.diverging else (CHARACTERS, part)
    shade = ramp[min(int(far * len(ramp)), len(ramp) - 1)]
    return f"-{shade}" if scale.diverging and part < 0.5 and shade != " " else 2 * shade


def _number(value: float, scale: Scale) -> str:
    if math.isnan(value):
        return ""
    return "." if value == 0 else f"{round(100 * value if scale.in_hundredths else value, 0) + 0.0:.0f}"


def _add_legend(text: Text, scale: Scale, width: int, colored: bool, values: bool) -> None:
    """Append the legend of colors, characters and numbers."""
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
    for step in range(18):
        key.append(" ", _style_of(low + (high - low) * step / 17, scale))
    return key.append(f" {high:.3g}")


def _characters(scale: Scale) -> str:
    low, high = scale.ends
    ramp = f"'-@' .. 0 '{SIGNED_CHARACTERS}'" if scale.diverging else f"'{CHARACTERS}'"
    return f"{low:.3g} {ramp} {high:.3g}"


def _subsample(line: Sequence[float], room: int) -> list[float]:
    """At most `room` evenly spaced values, including the first and the last."""
    if len(line) <= room:
        return list(line)
    return [line[round(step * (len(line) - 1) / max(1, room - 1))] for step in range(room)]


def _bar(value: float, scale: Scale) -> str:
    return BARS[min(int(scale.fraction(value) * len(BARS)), len(BARS) - 1)] if math.isfinite(value) else " "


def cell_text(cell: str | float | None) -> str:
    """A cell of a table: floats have three decimals, None and NaN are blank."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return f"{round(cell, 3) + 0.0:.3f}" if isinstance(cell, float) else str(cell)  # + 0.0: no -0.000


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "").rstrip("%"))
    except ValueError:
        return False
    return True


def sparkline(values: Sequence[float], width: int = 32) -> str:
    """At most `width` blocks, each the mean of its share of the values; "" without values."""
    n = min(width, len(values))
    parts = [values[i * len(values) // n : (i + 1) * len(values) // n] for i in range(n)]
    means = [sum(part) / len(part) for part in parts]
    low = min(means, default=0.0)
    span = max(means, default=0.0) - low
    return "".join(BARS[round((mean - low) / span * (len(BARS) - 1)) if span else 0] for mean in means)
