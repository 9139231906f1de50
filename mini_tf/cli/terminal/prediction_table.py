"""Predictions as rows of a table, for a terminal: each is printed when it is made, in columns of fixed widths."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mini_tf.cli.terminal.console import Console

WIDEST_LABEL = 24
NARROWEST_TEXT = 16
Row = tuple[str, str, str, str]
"""Number of the input line, label, probability, text."""


class PredictionTable:
    """labels: the names of the classes, if there are some; top: how many of them have a probability."""

    def __init__(self, console: Console, labels: Sequence[str], top: int | None) -> None:
        self._console, self._begun = console, False
        label = min(WIDEST_LABEL, max(map(len, [*labels, "label", "-0.0000"])))
        self._widths = [6, label, 11 if top is None else min(top * (label + 6), 40)]

    def add(self, texts: Sequence[str], line: Mapping[str, Any]) -> None:
        """Print the rows of an example. line: what `predict` prints of it as JSON."""
        if not self._begun:
            self._begun = True
            self._show(("line", "label", "most probable" if "top" in line else "probability", "text"), bold=True)
        for row in rows_of(texts, line):
            self._show(row)

    def _show(self, row: Row, bold: bool = False) -> None:
        from rich.style import Style
        from rich.text import Text

        from mini_tf.drawing.labels import caption
        from mini_tf.drawing.text_layout import pad_left, pad_right

        widths = [*self._widths, max(NARROWEST_TEXT, self._console.width - sum(self._widths) - 6)]
        cells = [caption(cell, width) for cell, width in zip(row, widths, strict=True)]
        placed = [pad_left(cells[0], widths[0]), *map(pad_right, cells[1:], widths[1:])]
        style = Style(bold=bold and self._console.colored)
        self._console.show(Text("  ".join(placed), style, no_wrap=True, overflow="ignore"))


def rows_of(texts: Sequence[str], line: Mapping[str, Any]) -> Iterator[Row]:
    """One row for an example, or one for each of its words; "-" is no label, of enough probability."""
    label, scores, top = line["label"], line["scores"], line.get("top")
    if "words" in line:
        for number, (word, tag, p) in enumerate(zip(line["words"], label, scores, strict=True)):
            shown = f"{p:.4f}" if top is None else _most_probable(top[number])
            yield str(line["line"]) if number == 0 else "", tag or "-", shown, word
    elif isinstance(label, list):
        shown = _most_probable(top) if top is not None else ", ".join(f"{scores[one]:.4f}" for one in label)
        yield str(line["line"]), ", ".join(label) or "-", shown, " | ".join(texts)
    elif isinstance(label, float):
        yield str(line["line"]), f"{label:.6g}", "", " | ".join(texts)
    else:
        p = scores.get(label)
        shown = _most_probable(top) if top is not None else "" if p is None else f"{p:.4f}"
        yield str(line["line"]), label or "-", shown, " | ".join(texts)


def _most_probable(top: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{one['label']} {one['score']:.2f}" for one in top)
