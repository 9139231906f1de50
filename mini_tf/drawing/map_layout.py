"""Where the maps of a figure stand: groups with labels at their left and lower edge, and cells of one size.

Maps with the same labels stand in one section. Sections stand side by side and below each other such that the figure is
as small as its cells allow. If labels do not fit beside the cells they get smaller, down to 6 points; then one map has
a label on every n-th row and column, and several maps have indices, with a list of the tokens below.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count, groupby
from math import ceil, sqrt

from mini_tf.drawing.canvas import COLORBAR_WIDTH, LINE_HEIGHT, MARGIN, MAX_SIZE, MIN_WIDTH, TEXT_SIZE, text_width
from mini_tf.drawing.panel import Panel
from mini_tf.drawing.plotting import figure_caption, figure_label
from mini_tf.system.errors import UsageFault

Size = tuple[float, float]
"""Width and height in inches."""

_LABEL_SIZES = (TEXT_SIZE, 7.0, 6.0)
_MAX_LABEL = 18
_MAX_CELL, _MIN_CELL = 0.45, 0.004
_MAP_SIZES = {1: 5.0, 4: 3.6}
"""Preferred size of a map by the maximum number of maps; of more maps, that below."""
_SMALL_MAP = 1.6
_GAPS = (0.12, 0.3)
"""Horizontal and vertical space between maps in inches; the vertical one has the title of the next."""
_SECTION_GAPS = (0.35, 0.25)
_TITLE_HEIGHT, _HEADING_HEIGHT, SIDE = 0.2, 0.22, 0.17
"""Heights of the title of a map, of the heading of a section, and of the title of an axis."""
_INDEX_SPACING = 0.26
"""Minimum distance of two token indices in inches."""
_MIN_TITLE, _MAX_TITLE = 0.6, 1.6
"""Minimum width of a title in inches, and the maximum for which a few narrow maps stand apart."""
_MAX_MAPS = 50
"""Maximum number of rows and of columns of maps."""
_PAGE = 1.6
"""Preferred ratio of the width and height of a figure."""


@dataclass(frozen=True, eq=False)
class MapSection:
    """Maps with the same labels, row by row."""

    maps: Sequence[Sequence[Panel]]

    @property
    def first(self) -> Panel:
        return self.maps[0][0]

    @cached_property
    def heading(self) -> str:
        return figure_caption(self.first.group, 60)

    @property
    def across(self) -> int:
        return max(map(len, self.maps))

    @lru_cache(maxsize=64)  # noqa: B019  sections live as long as a figure is drawn, and its layout asks many times
    def labels(self, size: float, indexed: bool) -> Size:
        """Width of the names of rows and height of those of columns, with the titles of the axes."""
        panel, words = self.first, list[float]()
        for names in (panel.rows, panel.columns):
            shown = [str(len(names) - 1)] if indexed else label_texts(panel, names)
            words.append(max((text_width(word, size) for word in dict.fromkeys(shown)), default=0.0))
        wide, high = words[0], LINE_HEIGHT if indexed else words[1]
        return 0.1 + wide + SIDE * bool(panel.sides[0]), 0.1 + high + SIDE * bool(panel.sides[1])

    @cached_property
    def title_width(self) -> float:
        """Width that the title of a map has at least."""
        if self.across > max(_MAP_SIZES):
            return min(_MIN_TITLE, MAX_SIZE / self.across - _GAPS[0])
        widest = max(text_width(figure_caption(panel.title, 120)) for of_line in self.maps for panel in of_line)
        return min(max(widest, _MIN_TITLE), _MAX_TITLE)

    @classmethod
    def of(cls, panels: Sequence[Panel]) -> "MapSection":
        """Panels with the same line number side by side, or in an almost square arrangement."""
        across = ceil(sqrt(len(panels)))
        lines = [n // across if panel.line is None else panel.line for n, panel in enumerate(panels)]
        of_line = {line: [panel for panel, its in zip(panels, lines, strict=True) if its == line] for line in lines}
        return cls([*of_line.values()])


def sections_of(panels: Sequence[Panel]) -> list[MapSection]:
    """Neighbors of one group with the same labels are a section."""
    alike = groupby(panels, key=lambda panel: (panel.group, tuple(panel.rows), tuple(panel.columns), panel.sides))
    return [MapSection.of([*members]) for _, members in alike]


@dataclass(frozen=True, eq=False)
class MapLayout:
    """Lines of sections, the size of a cell in inches, and the font size of the labels.

    every: n-th rows and columns with a label; indexed: labels are indices, not tokens.
    """

    lines: Sequence[Sequence[MapSection]]
    cell: float
    size: float = TEXT_SIZE
    every: int = 1
    indexed: bool = False

    @property
    def has_headings(self) -> bool:
        return len({section.first.group for line in self.lines for section in line}) > 1

    def map_size(self, panel: Panel) -> Size:
        rows, columns = panel.values.shape
        return columns * self.cell, rows * self.cell

    def pitch(self, section: MapSection) -> Size:
        """Horizontal and vertical distance of the maps."""
        width, height = self.map_size(section.first)
        return max(width, section.title_width) + _GAPS[0], height + _GAPS[1]

    @property
    def top(self) -> float:
        """Height above the maps of a section."""
        return _TITLE_HEIGHT + _HEADING_HEIGHT * self.has_headings

    def size_of(self, section: MapSection) -> Size:
        """Of the maps with their labels, titles and heading."""
        labels, pitch, last = section.labels(self.size, self.indexed), self.pitch(section), self.map_size(section.first)
        width = labels[0] + (section.across - 1) * pitch[0] + max(last[0], section.title_width)
        heading = text_width(section.heading) * self.has_headings
        return max(width, heading), self.top + (len(section.maps) - 1) * pitch[1] + last[1] + labels[1]

    @property
    def extent(self) -> Size:
        """Of all sections."""
        sizes = [[self.size_of(section) for section in line] for line in self.lines]
        widths = [sum(width for width, _ in line) + (len(line) - 1) * _SECTION_GAPS[0] for line in sizes]
        heights = [max(height for _, height in line) for line in sizes]
        return max(widths), sum(heights) + (len(heights) - 1) * _SECTION_GAPS[1]

    def places(self) -> Iterator[tuple[MapSection, float, float]]:
        """Each section, and its left and upper edge."""
        top = 0.0
        for line in self.lines:
            left = MARGIN
            for section in line:
                yield section, left, top
                left += self.size_of(section)[0] + _SECTION_GAPS[0]
            top += max(self.size_of(section)[1] for section in line) + _SECTION_GAPS[1]

    def fits(self, width: float = MAX_SIZE + 0.5, height: float = MAX_SIZE) -> bool:
        return self.extent[0] <= width and self.extent[1] <= height


def layout_of(panels: Sequence[Panel]) -> MapLayout:
    """The layout with cells of the preferred size, or the largest that fit. UsageFault for too many maps."""
    sections = sections_of(panels)
    rows, columns = sum(len(section.maps) for section in sections), max(section.across for section in sections)
    cells = max(max(panel.values.shape) for panel in panels)
    wanted = next((size for most, size in _MAP_SIZES.items() if len(panels) <= most), _SMALL_MAP) / max(cells, 1)
    for size in _LABEL_SIZES:
        line = LINE_HEIGHT * size / TEXT_SIZE
        layout = _smallest(sections, size, max(wanted, line))
        if layout.cell >= line - 1e-9 and max(columns, rows) <= _MAX_MAPS:
            return layout
    if len(panels) == 1:
        cell = _smallest(sections, TEXT_SIZE, wanted).cell
        return MapLayout([sections], cell, every=ceil(LINE_HEIGHT / cell - 1e-9))
    layout = _smallest(sections, TEXT_SIZE, wanted, indexed=True)
    if layout.cell <= _MIN_CELL or max(columns, rows) > _MAX_MAPS:
        message = (
            f"{len(panels)} maps in {rows} rows of {columns}: a figure has room for {_MAX_MAPS} rows of {_MAX_MAPS}"
        )
        raise UsageFault(f"{message}, and 30 inches", hint="select heads by --layer and --head")
    every = next(step for step in _round_numbers() if step * layout.cell >= _INDEX_SPACING or step >= cells)
    return MapLayout(layout.lines, layout.cell, every=every, indexed=True)


def _smallest(sections: Sequence[MapSection], size: float, wanted: float, indexed: bool = False) -> MapLayout:
    """The arrangement of sections that needs the smallest page for its cells, of the wanted size if that fits.

    Cells of a figure narrower than the minimum are enlarged.
    """
    layouts = []
    for across in range(1, len(sections) + 1):
        lines = [sections[first : first + across] for first in range(0, len(sections), across)]
        cell = _largest_cell(lines, size, indexed, min(wanted, _MAX_CELL))
        wide = _largest_cell(lines, size, indexed, _MAX_CELL, MIN_WIDTH - COLORBAR_WIDTH - MARGIN, MIN_WIDTH)
        layouts.append(MapLayout(lines, max(cell, wide), size, indexed=indexed))
    return min(layouts, key=lambda layout: max(layout.extent[0] / _PAGE, layout.extent[1]) / layout.cell)


def _largest_cell(
    lines: Sequence[Sequence[MapSection]],
    size: float,
    indexed: bool,
    most: float,
    width: float = MAX_SIZE + 0.5,
    height: float = MAX_SIZE,
) -> float:
    """The largest cell, at most `most`, with which the sections fit; the smallest one if none does."""
    low, high = _MIN_CELL, most
    if MapLayout(lines, high, size, indexed=indexed).fits(width, height):
        return high
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if MapLayout(lines, middle, size, indexed=indexed).fits(width, height) else (low, middle)
        )
    return low


def _round_numbers() -> Iterator[int]:
    """1, 2, 5, 10, 20, 50, ..."""
    return (digit * 10**power for power in count() for digit in (1, 2, 5))


def label_texts(panel: Panel, names: Sequence[str]) -> list[str]:
    """Names of rows or columns as they are shown."""
    shown = figure_label if panel.tokens else figure_caption
    return [shown(name, _MAX_LABEL) for name in names]
