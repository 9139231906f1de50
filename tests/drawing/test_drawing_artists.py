"""What figures show, read off matplotlib's artists: numbers and marks where their labels stand, colors, lines."""

import itertools
from dataclasses import replace
from typing import Any

import figures
import matplotlib
import numpy as np
import pytest
from figures import drawn, maps
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from mini_tf.drawing.canvas import LINE_HEIGHT, MAX_SIZE, distinct_colors, text_width, truncate_to, wrap_caption
from mini_tf.drawing.classifier_plots import draw_calibration, draw_confusion
from mini_tf.drawing.curves import draw_curves, draw_learning_curves, draw_searched, loss_curves
from mini_tf.drawing.heat_maps import draw
from mini_tf.drawing.look import DARK, LIGHT, Look, drawn_as, luminance, text_color_on
from mini_tf.drawing.map_layout import layout_of
from mini_tf.drawing.panel import Curves, Marks, Panel, PanelGrid, QueryWeights, Scale
from mini_tf.drawing.plotting import figure_label

ROWS, COLUMNS = ["a", "b"], ["x", "y", "z"]
VALUES = np.array([[0.1, 0.2, 0.3], [0.4, np.nan, 0.6]])
MARKS = Marks(
    frozenset({(0, 2), (1, 0)}), frozenset({(1, 0)}), frozenset({(0, 1)}), ("by the head", "gold", "possible")
)


def grid(*panels: Panel, scale: Scale = Scale(), across: int | None = None) -> Figure:
    """across: maps that stand side by side; None: an almost square arrangement."""
    placed = [replace(panel, line=None if across is None else n // across) for n, panel in enumerate(panels)]
    return drawn(lambda: draw(PanelGrid(placed, scale, "title", "the text"), "svg"))


def overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    left, top, width, height = one
    x, y, across, down = other
    return left < x + across and x < left + width and top < y + down and y < top + height


def test_a_map_has_each_number_and_each_mark_at_its_row_and_column() -> None:
    figure = grid(Panel("one", ROWS, COLUMNS, VALUES, "a note", marks=MARKS), scale=Scale(0, 0.5))
    [found] = maps(figure)
    assert (found.title, found.rows, found.columns) == ("one", dict(enumerate(ROWS)), dict(enumerate(COLUMNS)))
    np.testing.assert_array_equal(found.values, VALUES)
    assert found.named == {"square": {("a", "z"), ("b", "x")}, "ring": {("b", "x")}, "dotted ring": {("a", "y")}}
    assert found.colors == ("Blues", 0.0, 0.5)
    assert figures.colorbar(figure) == ("attention weight", (0.0, 0.5))
    assert figures.texts(figure) == [
        "title",
        "the text",
        "a note",
        "square: by the head, ring: gold, dotted ring: possible",
    ]
    numbers = {text.get_position(): text.get_text() for text in figure.axes[0].texts}
    assert numbers == {(0, 0): ".10", (1, 0): ".20", (2, 0): ".30", (0, 1): ".40", (2, 1): ".60"}


def tops(figure: Figure) -> list[float]:
    """Of title and notes, in inches from the top."""
    return [round((1 - text.get_position()[1]) * figure.get_size_inches()[1], 6) for text in figure.texts]


def test_title_and_notes_stand_above_the_maps_and_the_color_bar_right_of_them() -> None:
    for n, across in ((1, 1), (6, 3)):
        figure = grid(*[Panel("t", ROWS, COLUMNS, VALUES, "a note")] * n, across=across)
        places = [one.place for one in maps(figure)]
        width, height = figure.get_size_inches()
        assert tops(figure) == pytest.approx([0.12, 0.37, 0.52])
        assert [text.get_position()[0] * width for text in figure.texts] == pytest.approx([0.15] * 3)
        assert 0.52 + LINE_HEIGHT + 0.1 < min(top for _, top, _, _ in places) < 1.2, "room for the titles of the maps"
        box = figure.axes[-1].get_position()
        right = max(left + across for left, _, across, _ in places)
        lower = max(top + down for _, top, _, down in places)
        assert right + 0.1 < box.x0 * width < right + 0.7
        assert box.width * width == pytest.approx(0.13)
        assert (1 - box.y1) * height == pytest.approx(places[0][1])
        assert box.height * height == pytest.approx(min(max(lower - places[0][1], 1.3), 3.0))
        assert box.x1 * width + 0.5 < width
        assert lower + 0.2 < height


def test_without_titles_the_maps_begin_at_the_top_and_no_figure_has_one() -> None:
    with drawn_as(Look(titled=False)):
        figure = grid(Panel("t", ROWS, COLUMNS, VALUES, "a note", marks=MARKS))
        query = query_figure(VALUES[:, :2], [("L0", "H0"), ("L0", "H1")])
        curves = drawn(lambda: draw_curves([Curves("title", [1, 2], "x", "y", {"": [1, 2]})], "svg"))
        losses = drawn(lambda: loss_curves({"a": ([], [(2, 3.5)])}, "nats", "svg"))
        confusion = drawn(lambda: draw_confusion(np.eye(2, dtype=int), ROWS, "title", "svg"))
        calibration = drawn(lambda: draw_calibration(*np.ones((3, 2)), 0.1, "title", "svg"))
    assert [figures.texts(part) for part in (figure, curves, losses, confusion, calibration)] == [[]] * 5
    assert figures.texts(query) == ["L0"]
    assert maps(figure)[0].place[1] < 0.4
    assert maps(figure)[0].title == "t"


def test_kinds_of_attention_are_sections_whose_labels_stand_once() -> None:
    """Of an encoder-decoder: the labels of four maps of 3 x 3, and of two of 2 x 3 beside them."""
    one = [
        Panel(f"L{n}", COLUMNS, COLUMNS, np.eye(3), group="encoder", line=n // 2, sides=("query", "key"))
        for n in range(4)
    ]
    other = [Panel(f"L{n}", ROWS, COLUMNS, VALUES, group="cross", line=n, sides=("target", "source")) for n in range(2)]
    figure = drawn(lambda: draw(PanelGrid([*one, *other], Scale(), "title"), "svg"))
    found = maps(figure)
    assert [bool(panel.rows) for panel in found] == [True, False, True, False, True, True]
    assert [bool(panel.columns) for panel in found] == [False, False, True, True, False, True]
    assert len({round(panel.place[2] / panel.values.shape[1], 6) for panel in found}) == 1, "cells of one size"
    assert found[4].place[0] > found[1].place[0] + found[1].place[2], "side by side, since that is smaller"
    assert not any(overlap(one.place, other.place) for one, other in itertools.combinations(found, 2))
    assert figures.texts(figure)[1:] == ["query", "key", "encoder", "target", "source", "cross"]
    width, height = figure.get_size_inches()
    rows, columns = (next(text for text in figure.texts if text.get_text() == side) for side in ("query", "key"))
    (left, top, _, _), (x, y, across, down) = found[0].place, found[3].place
    assert (1 - rows.get_position()[1]) * height == pytest.approx((top + y + down) / 2), "half way down the maps"
    assert columns.get_position()[0] * width == pytest.approx((left + x + across) / 2)
    assert rows.get_position()[0] * width < left
    assert (1 - columns.get_position()[1]) * height > y + down


def test_names_that_do_not_fit_are_listed_unless_they_are_their_indices() -> None:
    def listed(rows: list[str], columns: list[str], **options: Any) -> tuple[list[dict[int, str]], str]:
        """The labels of columns of four maps, and the texts of the figure."""
        panels = [Panel("", rows, columns, np.eye(len(rows), len(columns)), line=n // 2, **options) for n in range(4)]
        figure = drawn(lambda: draw(PanelGrid(panels, Scale(), "t", f"a text of {len(columns)} tokens"), "svg"))
        return [part.columns for part in maps(figure)], " ".join(" ".join(figures.texts(figure)).split())

    words, names, numbers = ([f"{letter}{i}" for i in range(150)] for letter in ("token", "!", ""))
    labels, text = listed(numbers[:1], words)
    assert labels[:2] == [{}, {}]
    assert labels[2] == labels[3] == {i: str(i) for i in labels[2]}
    step = sorted(labels[2])[1]
    assert [*labels[2]] == [*range(0, 150, step)]
    assert "a text of 150 tokens" in text
    assert text.endswith(" ".join(f"[{i}]{word}" if i % step == 0 else word for i, word in enumerate(words)))
    assert "Names: [0]!0 !1" in (shown := listed(names, numbers, tokens=False)[1])
    assert shown.count("[0]") == 1
    assert "Names: [0]1 2" in listed(numbers[1:], numbers[1:], tokens=False)[1]


def test_a_truncated_caption_is_as_long_as_fits() -> None:
    words = "iiii WWWW llll mmmm " * 9
    for inches in np.linspace(0.5, 3, 23):
        for line in (wrap_caption(words, inches, 1)[0], truncate_to(words, inches)):
            shown = line.removesuffix("…")
            assert words.startswith(shown)
            assert text_width(line) <= inches
            assert text_width(words[: len(shown) + 1] + "…") > inches or words[len(shown)] == " "
    assert truncate_to("short", 3) == "short"
    assert truncate_to("W" * 50, 0.05) == "…"


def test_numbers_are_readable_on_their_color() -> None:
    """WCAG 2: the better of black and white has a contrast of at least 4.5 on every color."""

    def luminance(color: tuple[float, ...]) -> float:
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color[:3]]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for scale, dark in itertools.product((Scale(), Scale(-1, 1, diverging=True)), (False, True)):
        values = np.linspace(*scale.ends, 9)[None]
        with drawn_as(Look(dark=dark)):
            figure = grid(Panel("", ["a"], list("123456789"), values), scale=scale)
        for text in figure.axes[0].texts:
            behind = figure.axes[0].images[0].to_rgba(np.array([values[0, round(text.get_position()[0])]]))[0]
            light, dark = sorted((luminance(to_rgb(text.get_color())), luminance(behind)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) > 4.5
    assert [text_color_on(color) for color in ((0, 0, 0), (255, 255, 255), (0, 0, 255), (255, 255, 0))] == [
        (255,) * 3, (0,) * 3, (255,) * 3, (0,) * 3,
    ]  # fmt: skip


def test_a_diverging_scale_is_symmetric_and_blue_below_zero() -> None:
    [found] = maps(grid(Panel("", ROWS, COLUMNS, VALUES), scale=Scale(-0.2, 0.7, diverging=True)))
    assert found.colors == ("RdBu_r", -0.7, 0.7)
    red, _, blue, _ = matplotlib.colormaps["RdBu_r"](0.1)
    assert blue > red
    dark, white = (sum(matplotlib.colormaps["Blues"](end)[:3]) for end in (1.0, 0.0))
    assert dark < white


def test_panels_stand_row_by_row_without_overlap_with_labels_at_the_edges() -> None:
    found = maps(grid(*[Panel(f"H{n}", ROWS, COLUMNS, VALUES + n) for n in range(5)], across=2))
    assert [one.title for one in found] == [f"H{n}" for n in range(5)]
    for n, one in enumerate(found):
        np.testing.assert_array_equal(one.values, VALUES + n)
        assert bool(one.rows) == (n % 2 == 0), "at the left edge"
        assert bool(one.columns) == (n >= 3), "at the lower edge"
        assert (one.place[0], one.place[1]) == (found[n % 2].place[0], found[n // 2 * 2].place[1])
    assert found[0].place[0] < found[1].place[0]
    assert found[0].place[1] < found[2].place[1] < found[4].place[1]


@pytest.mark.parametrize("alike", [True, False])
def test_panels_have_cells_of_one_size_and_do_not_overlap(alike: bool) -> None:
    panels = [Panel(f"H{n}", ROWS, COLUMNS if alike or n % 2 else ["u", "v", "w"], VALUES + n) for n in range(5)]
    found = maps(grid(*panels, across=2))
    assert all(one.rows and one.columns for one in found) == (not alike), "labels that differ stand at each"
    assert not any(overlap(one.place, other.place) for one, other in itertools.combinations(found, 2))
    cells = {(round(width / 3, 6), round(height / 2, 6)) for _, _, width, height in (one.place for one in found)}
    assert len(cells) == 1
    [(width, height)] = cells
    assert width == height, "cells are squares"


def test_panels_are_almost_square_unless_their_number_across_is_given() -> None:
    def columns(n: int, across: int | None) -> list[int]:
        panels = [Panel("", ROWS, COLUMNS, VALUES, line=across and i // across) for i in range(n)]
        [[section]] = layout_of(panels).lines
        return [len(line) for line in section.maps]

    assert [columns(n, None) for n in (1, 2, 4, 5)] == [[1], [2], [2, 2], [3, 2]]
    assert [columns(n, 4) for n in (3, 5)] == [[3], [4, 1]]


@pytest.mark.parametrize(("panels", "tokens"), [(1, 3), (1, 300), (4, 30), (4, 150)])
def test_labels_stand_at_their_rows_and_fit_whatever_the_size(panels: int, tokens: int) -> None:
    words = [f"word{i}" for i in range(tokens)]
    values = np.arange(tokens * tokens, dtype=float).reshape(tokens, tokens) / tokens**2
    figure = grid(*[Panel(f"H{i}", words, words, values) for i in range(panels)])
    found = maps(figure)
    width, height = figure.get_size_inches()
    assert max(width, height) <= MAX_SIZE + 2
    for one in found:
        left, top, across, down = one.place
        assert left >= 0
        assert top > 0
        assert left + across <= width
        assert top + down <= height
        cell = down / tokens
        for row, label in one.rows.items():
            assert label in (f"word{row}", str(row))
            assert left - text_width(label, 6) > 0 or one is not found[0]
        gaps = np.diff([*one.rows])
        assert len({*gaps}) <= 1
        assert not len(gaps) or gaps[0] * cell >= 0.112, "lines of text do not overlap: they have 6 points or more"
    np.testing.assert_array_equal(found[-1].values, values)


def test_words_as_long_as_they_get_and_400_heads_stay_under_30_inches() -> None:
    words = ["W" * 30] * 150
    assert max(grid(Panel("t", words, words, np.eye(150))).get_size_inches()) < 30
    figure = query_figure(np.full((400, 2), 0.5), [("L0", f"H{i}") for i in range(400)])
    assert max(figure.get_size_inches()) < 30
    named = [label.get_text() for label in figure.axes[1].get_yticklabels()]
    assert 100 <= len(named) <= 200
    assert named[0] == "H0"


def test_marks_grow_with_the_cells_and_lie_within_them() -> None:
    def sizes(n: int) -> dict[str, float]:
        names = [str(i) for i in range(n)]
        figure = grid(Panel("", names, names, np.zeros((n, n)), marks=Marks(frozenset({(0, 0)}), frozenset({(1, 1)}))))
        inches = maps(figure)[0].place[2] / n
        return {
            name: float(part.get_sizes()[0]) ** 0.5 / 72 / inches
            for name, part in zip("sSrR", figure.axes[0].collections, strict=False)
        }

    for n in (4, 40):
        shares = sizes(n)
        assert shares["s"] == shares["S"] == pytest.approx(0.92)
        assert shares["r"] == shares["R"] == pytest.approx(0.7), "a ring fits into a square"


def query_figure(weights: np.ndarray, heads: list[tuple[str, str]], query: int | None = 1, **more: Any) -> Figure:
    tokens = list("abcdefgh"[: weights.shape[1]])
    return drawn(lambda: draw(QueryWeights("title", "b", query, tokens, weights, heads, "the text", **more), "svg"))


def test_lines_of_a_query_lead_from_it_to_its_keys_by_head() -> None:
    weights = np.array([[0.5, 0.5, 0.0], [0.009, 0.0, 0.991]])
    figure = query_figure(weights, [("L0", "H0"), ("L0", "H1")])
    lines = figure.axes[0]
    [found] = lines.collections
    colors = matplotlib.colormaps["tab10"].colors
    ends = [tuple(map(tuple, segment)) for segment in found.get_segments()]
    assert ends == [((1, 1), (-0.25, 0)), ((1, 1), (0.75, 0)), ((1, 1), (2.25, 0))], (
        "of the second head only weights of 0.01"
    )
    half, full = 0.15 + 0.85 * 0.5, 0.15 + 0.85 * 0.991
    assert [tuple(color) for color in found.get_colors()] == [
        (*colors[0], pytest.approx(half)), (*colors[0], pytest.approx(half)), (*colors[1], pytest.approx(full)),
    ]  # fmt: skip
    assert [*found.get_linewidths()] == pytest.approx([1.5, 1.5, 0.6 + 1.8 * 0.991])
    [weights_map] = maps(figure)[:1]
    np.testing.assert_array_equal(weights_map.values, weights)
    assert (weights_map.rows, weights_map.colors) == ({0: "H0", 1: "H1"}, ("Blues", 0.0, 1.0))
    assert (lines.get_xlim(), lines.get_ylim()) == ((-0.5, 2.5), (0, 1))
    assert [(text.get_text(), *text.xy) for text in lines.texts] == [(word, n, 1.0) for n, word in enumerate("abc")]
    assert [text.get_color() for text in lines.texts] == ["#555555", "black", "#555555"], "the query stands out"
    assert [(text.get_text(), *text.xy) for text in figure.axes[1].texts] == [(w, n, 0.0) for n, w in enumerate("abc")]
    boxes = [axes.get_position() for axes in figure.axes[:2]]
    assert boxes[0].y0 > boxes[1].y1, "lines end at the map"
    assert (boxes[0].x0, boxes[0].x1) == (boxes[1].x0, boxes[1].x1)


@pytest.mark.parametrize(("layers", "heads"), [(1, 30), (6, 2), (11, 1)])
def test_layers_of_a_query_stand_apart_and_no_color_repeats(layers: int, heads: int) -> None:
    names = [(f"L{layer}", f"H{head}") for layer in range(layers) for head in range(heads)]
    weights = np.arange(layers * heads * 3).reshape(-1, 3) / 1000
    figure = query_figure(weights, names)
    shown, swatches = (
        [axes for axes in figure.axes if axes.images and np.ndim(axes.images[0].get_array()) == n] for n in (2, 3)
    )
    assert [[text.get_text() for text in axes.get_yticklabels()] for axes in shown] == [
        [f"H{head}" for head in range(heads)] for _ in range(layers)
    ]
    np.testing.assert_array_equal(np.concatenate([np.asarray(axes.images[0].get_array()) for axes in shown]), weights)
    boxes = [axes.get_position() for axes in shown]
    assert all(above.y0 > below.y1 for above, below in itertools.pairwise(boxes)), "a gap between layers"
    assert [text.get_text() for text in figure.texts][3:] == [f"L{layer}" for layer in range(layers)]
    colors = [tuple(color) for axes in swatches for color in np.asarray(axes.images[0].get_array()).reshape(-1, 3)]
    assert len(colors) == layers * heads
    assert len({*colors}) == (layers if layers > 1 else heads), "one of each layer, or of each head of one layer"


def test_colors_of_many_lines_do_not_repeat_and_neighbors_differ() -> None:
    for n in (1, 10, 11, 40, 300):
        colors = np.array(distinct_colors(n))
        assert len({tuple(color) for color in colors}) == n
        assert np.abs(np.diff(colors, axis=0)).max(axis=1).min(initial=1) > 0.2
        for background in (LIGHT.paper, DARK.paper):
            light, dark = (np.array([luminance(*color) for color in part]) for part in (colors, [to_rgb(background)]))
            contrast = np.maximum(light + 0.05, dark + 0.05) / np.minimum(light + 0.05, dark + 0.05)
            assert contrast.min() > 1.9, "visible on white and on black"


@pytest.mark.parametrize("n", [2, 14])
def test_many_runs_are_named_beside_their_curves(n: int) -> None:
    runs = {f"_run{i}": ([(1, 4.0), (2, 3.0)], [(2, 3.5)]) for i in range(n)}
    figure = drawn(lambda: loss_curves(runs, "nats", "svg"))
    [axes], names = figure.axes, list(runs)
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == names
    figure.draw_without_rendering()
    assert (legend.get_window_extent().x0 > axes.get_window_extent().x1) == (n > 5)


@pytest.mark.parametrize("word", ["a", "amendments", "W" * 30])
def test_a_query_has_room_for_its_words_and_the_names_of_its_heads(word: str) -> None:
    data = QueryWeights(
        "t", word, 1, ["x", word, "y"], np.full((2, 3), 0.3), [("L0", "H0"), ("L10", "H11")], "the text"
    )
    figure = drawn(lambda: draw(data, "svg"))
    lines, first, last = (figure.axes[n].get_position() for n in (0, 1, 3))
    width, height = figure.get_size_inches()
    label = text_width(figure_label(word, 18))
    assert last.y0 * height > 0.1 + label
    assert (1 - lines.y1) * height - max(tops(figure)[:3]) - 0.12 > label, "below the notes"
    assert lines.height * height == pytest.approx(1.6)
    assert first.height * height == pytest.approx(0.15)
    assert first.x0 * width > text_width("L10") + text_width("H11") + 0.15
    assert first.x1 < 1


def test_a_query_of_another_text_stands_over_the_middle_of_its_keys() -> None:
    figure = query_figure(np.array([[0.1, 0.2, 0.3, 0.4]]), [("L0", "H0")], None)
    lines = figure.axes[0]
    assert [(text.get_text(), *text.xy) for text in lines.texts] == [("b", 1.5, 1.0)]
    ends = [segment[:, 0].tolist() for segment in lines.collections[0].get_segments()]
    assert ends == [[1.5, token - 0.25] for token in range(4)], "the largest weight is on top"
    assert figures.texts(figure)[0] == "title: b"


def test_the_strongest_lines_are_drawn_and_the_others_counted() -> None:
    weights = np.arange(1, 101).reshape(20, 5) / 100
    figure = query_figure(weights, [("L0", f"H{i}") for i in range(20)], scale=Scale(high=0.5), notes=["truncated"])
    alphas = figure.axes[0].collections[0].get_colors()[:, 3]
    assert [*alphas] == pytest.approx([0.15 + 0.85 * min(1, n / 50) for n in range(41, 101)])
    assert "the 60 largest of 100 weights" in " ".join(figures.texts(figure))
    assert "truncated" in figures.texts(figure)


def test_curves_have_their_points_names_and_axes() -> None:
    x, lines = [2.0, 4.0, 8.0], {"one": [1.0, 2.0, 4.0], "_two": [3.0, float("nan"), 1.0]}
    panels = [
        Curves("left", x, "tokens", "seconds", lines, logarithmic=True),
        Curves("right", x, "d", "s", {"one": [5.0, 6.0, 7.0]}),
    ]
    first, second = drawn(lambda: draw_curves(panels, "svg")).axes
    assert [(line.get_xdata().tolist(), line.get_color()) for line in first.lines] == [
        (x, distinct_colors(2)[n]) for n in (0, 1)
    ]
    for line, values in zip(first.lines, lines.values(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), values)
    assert second.lines[0].get_color() == first.lines[0].get_color(), "a name has one color"
    assert (first.get_title(loc="left"), first.get_xlabel(), first.get_ylabel()) == ("left", "tokens", "seconds")
    assert (first.get_xscale(), first.get_yscale(), second.get_xscale(), second.get_yscale()) == (
        "log",
        "log",
        "linear",
        "linear",
    )
    assert [text.get_text() for text in first.get_xticklabels()] == ["2", "4", "8"]
    assert [text.get_text() for text in second.get_legend().get_texts()] == ["one", "_two"]
    handles = second.get_legend().legend_handles
    assert [(handle.get_color(), handle.get_linestyle()) for handle in handles] == [
        (line.get_color(), line.get_linestyle()) for line in first.lines
    ]
    [alone] = drawn(lambda: draw_curves([Curves("t", x, "x", "y", {"": [1.0, 2.0, 3.0]})], "svg")).axes
    assert alone.get_legend() is None


def test_of_many_curves_neighbors_differ_and_over_40_are_counted() -> None:
    def styles(n: int) -> tuple[list[tuple[object, str]], str, bool]:
        [axes] = drawn(
            lambda: draw_curves([Curves("t", [1, 2], "x", "y", {str(i): [i, i] for i in range(n)})], "svg")
        ).axes
        return (
            [(line.get_color(), line.get_linestyle()) for line in axes.lines],
            axes.get_xlabel(),
            axes.get_legend() is not None,
        )

    lines, label, has_legend = styles(40)
    assert len({*lines}) == 40
    assert (label, has_legend) == ("x", True)
    assert styles(41)[1:] == ("x   (41 lines, too many to name)", False)


def test_loss_curves_of_runs_are_dashed_for_training_with_dots_for_validation() -> None:
    runs = {"a": ([(1, 4.0), (2, 3.0)], [(2, 3.5)]), "b": ([], [(1, 2.0), (2, 1.0)])}
    [axes] = drawn(lambda: loss_curves(runs, "nats", "svg", "FLOPs")).axes
    lines = [
        (line.get_color(), line.get_linestyle(), line.get_marker(), [*line.get_xdata()], [*line.get_ydata()])
        for line in axes.lines
        if len(line.get_xdata())
    ]
    one, other = distinct_colors(2)
    assert lines == [
        (one, "--", "None", [1, 2], [4.0, 3.0]), (one, "-", "o", [2], [3.5]), (other, "-", "o", [1, 2], [2.0, 1.0]),
    ]  # fmt: skip
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("FLOPs", "loss (nats)")
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
    assert [line.get_color() for line in legend.legend_handles] == [one, other]


def test_learning_curves_are_means_of_runs_with_a_dot_for_each() -> None:
    lines = {"a": [(100, [0.2, 0.4]), (1000, [0.6])], "b": [(100, [0.5])]}
    [axes] = drawn(lambda: draw_learning_curves(lines, "accuracy", "svg")).axes
    drawn_lines = [
        ([*line.get_xdata()], [*line.get_ydata()], line.get_linestyle(), line.get_marker())
        for line in axes.lines
        if len(line.get_xdata())
    ]
    assert drawn_lines == [
        ([100, 1000], pytest.approx([0.3, 0.6]), "-", "None"), ([100, 100, 1000], [0.2, 0.4, 0.6], "None", "o"),
        ([100], [0.5], "-", "None"), ([100], [0.5], "None", "o"),
    ]  # fmt: skip
    colors = [line.get_color() for line in axes.lines]
    assert colors == [distinct_colors(2)[n] for n in (0, 0, 0, 1, 1, 1)]
    assert (axes.get_xscale(), axes.get_ylabel(), [text.get_text() for text in axes.get_xticklabels()]) == (
        "log",
        "accuracy",
        ["100", "1,000"],
    )


def test_a_confusion_matrix_has_shares_as_colors_and_counts_as_numbers() -> None:
    counts, names = np.array([[6, 2, 0], [0, 0, 0], [1, 0, 3]]), ["no", "none", "yes"]
    figure = drawn(lambda: draw_confusion(counts, names, "title", "svg"))
    [found] = maps(figure)
    np.testing.assert_array_equal(found.values, [[0.75, 0.25, 0], [np.nan] * 3, [0.25, 0, 0.75]])
    assert (found.rows, found.columns) == ({0: "no (8)", 1: "none (0)", 2: "yes (4)"}, dict(enumerate(names)))
    assert found.colors == ("Blues", 0.0, 1.0)
    numbers = {text.get_position(): text.get_text() for text in figure.axes[0].texts}
    assert numbers == {(0, 0): "6", (1, 0): "2", (0, 2): "1", (2, 2): "3"}
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("predicted class", "true class (count)")
    many = np.eye(300, dtype=int)
    [found] = maps(figure := drawn(lambda: draw_confusion(many, [f"c{i}" for i in range(300)], "t", "svg")))
    assert len(figure.axes[0].texts) == 0
    step = next(row for row in found.rows if row)
    assert found.columns == {i: f"c{i}" for i in range(0, 300, step)}
    assert step * found.place[3] / 300 >= 0.149
    assert figures.texts(figure)[1] == f"One name per {step} classes."


def test_a_reliability_diagram_has_bars_gaps_and_counts_of_each_bin() -> None:
    confidence, accuracy, counts = (
        np.array([np.nan, 0.45, 0.9, 1.0]),
        np.array([np.nan, 0.6, 0.7, 1.0]),
        np.array([0, 4, 10, 1]),
    )
    figure = drawn(lambda: draw_calibration(confidence, accuracy, counts, 0.126, "run", "svg", temperature=1.7))
    upper, lower = figure.axes

    def bars(patches: object) -> list[tuple[float, float, float, float]]:
        return [
            tuple(round(float(v), 9) for v in (b.get_x(), b.get_width(), b.get_y(), b.get_height())) for b in patches
        ]  # type: ignore[misc, attr-defined]

    found, gaps = upper.containers
    assert bars(found) == [(0.25, 0.25, 0, 0.6), (0.5, 0.25, 0, 0.7), (0.75, 0.25, 0, 1.0)]
    assert bars(gaps) == [(0.25, 0.25, 0.45, 0.15), (0.5, 0.25, 0.7, 0.2), (0.75, 0.25, 1.0, 0)]
    assert bars(lower.containers[0]) == [(0.25 * n, 0.25, 0, count) for n, count in enumerate(counts)]
    assert [text.get_text() for text in upper.get_legend().get_texts()] == [
        "perfect calibration",
        "accuracy",
        "gap to confidence",
    ]
    assert [(tuple(line.get_xdata()), tuple(line.get_ydata())) for line in upper.lines] == [((0, 1), (0, 1))]
    assert (upper.get_xlim(), upper.get_ylim()) == ((0, 1), (0, 1))
    assert figure.get_suptitle() == "Expected calibration error 0.126: run"
    assert lower.get_xlabel() == "confidence: probability of the most probable class\nwith temperature 1.7"


def test_a_search_has_a_panel_per_key_and_its_best_trial_marked() -> None:
    points = [
        ({"lr": "0.01", "kind": "gru"}, 1.5, 0.25),
        ({"lr": "1e-3", "kind": "softmax"}, 2.0, None),
        ({"lr": "0.003", "kind": "gru"}, 1.75, None),
    ]
    rates, kinds = drawn(lambda: draw_searched(points, "val.loss", "a search", "svg")).axes
    for axes, x in ((rates, [0.01, 0.001, 0.003]), (kinds, [0, 1, 0])):
        dots = [line for line in axes.lines if line.get_marker() == "o"]
        assert {(line.get_xdata()[0], line.get_ydata()[0]) for line in dots} == {*zip(x, [1.5, 2.0, 1.75], strict=True)}
        [best] = [line for line in dots if line.get_ydata()[0] == 1.5]
        assert [line.get_color() for line in dots].count(best.get_color()) == 1
    [interval] = [bar for bar in rates.collections if len(bar.get_segments())]
    assert interval.get_segments()[0][:, 1].tolist() == [1.25, 1.75]
    assert (rates.get_xscale(), kinds.get_xscale(), rates.get_ylabel()) == ("log", "linear", "val.loss")
    assert [tick.get_text() for tick in rates.get_xticklabels()] == ["0.01", "1e-3", "0.003"]
    assert [tick.get_text() for tick in kinds.get_xticklabels()] == ["gru", "softmax"]
