"""The page of a view: the maps of its figure, and the tables, sentences and curves that it has for the terminal."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from mini_tf.drawing import terminal
from mini_tf.drawing.page.scenes import Page, PageMap, PageTable, Scene
from mini_tf.drawing.panel import Curves, PanelGrid, Scale


def page_of(title: str, figure: Any, pictures: Iterable[Callable[..., Any]], notes: Sequence[str] = ()) -> Page:
    """pictures: functions of `drawing.terminal` with their arguments bound. title: unless the figure has one."""
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
