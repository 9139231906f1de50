"""Confusion matrices and reliability diagrams: what they show, of any size; that their files are safe stands in
test_drawing_figures.
"""

import re
from collections.abc import Callable
from functools import partial

import figures
import numpy as np
import pytest
from hostile import HOSTILE, STEERING
from rich.cells import cell_len
from rich.text import Text

from mini_tf.drawing.canvas import COLORBAR_WIDTH, LINE_HEIGHT, MARGIN, MAX_SIZE, MIN_WIDTH, text_width
from mini_tf.drawing.classifier_plots import confusion_text, draw_calibration, draw_confusion
from mini_tf.drawing.text_layout import render_ansi

TITLE = "".join(HOSTILE)
SOME = np.random.default_rng(0).poisson(0.2, (len(HOSTILE), len(HOSTILE)))
SOME[2] = 0
BINS = (np.array([np.nan, 0.31, 0.9]), np.array([np.nan, 0.5, 0.8]), np.array([0, 4, 10]), 0.126)

TEXTS: dict[str, Callable[[bool, int], Text]] = {
    "confusion": lambda colored, width: confusion_text(SOME[:5, :5], HOSTILE[:5], TITLE, colored=colored, width=width),
    "long names": lambda colored, width: confusion_text(SOME[:4, :4], [TITLE] * 4, TITLE, colored=colored, width=width),
    "list": lambda colored, width: confusion_text(SOME, HOSTILE, TITLE, colored=colored, width=width),
}


def piped(picture: Text, width: int = 80) -> str:
    return render_ansi(picture, colored=False, width=width)


@pytest.mark.parametrize(("n", "numbered"), [(1, True), (40, True), (41, False), (200, False)])
def test_a_matrix_of_any_size_stays_within_bounds(n: int, numbered: bool) -> None:
    counts = np.zeros((n, n), dtype=np.int64)
    counts[:2] = 1234567
    names = [f"a class whose name is far too long for a picture {i}" for i in range(n)]
    figure = figures.drawn(lambda: draw_confusion(counts, names, "t", "png"))
    assert ({text.get_text() for text in figure.axes[0].texts} == {"1234567"}) == numbered
    assert ("Numbers: counts. Colours: share of the true class." in figures.texts(figure)) == numbered
    assert min(figure.get_size_inches()) > 2
    assert figures.maps(figure)[0].place[2] <= MAX_SIZE


def test_few_classes_fill_the_narrowest_figure_and_do_not_widen_it() -> None:
    for n in (1, 4, 6):
        names = [*"abcdef"[:n]]
        figure = figures.drawn(lambda names=names: draw_confusion(np.eye(len(names), dtype=int), names, "", "png"))
        left, _, across, _ = figures.maps(figure)[0].place
        assert figure.get_size_inches()[0] == MIN_WIDTH
        room = MARGIN + LINE_HEIGHT + max(text_width(f"{name} (1)") for name in names)
        assert left > room + 0.1, "for the title of the axis and the names of rows"
        assert n < 6 or left + across + COLORBAR_WIDTH == pytest.approx(MIN_WIDTH, abs=1e-5)


def test_classes_without_a_text_are_drawn_and_blank() -> None:
    nothing = np.zeros((3, 3), dtype=int)
    [found] = figures.maps(figures.drawn(lambda: draw_confusion(nothing, ["a", "b", "c"], "t", "png")))
    assert np.isnan(found.values).all()
    lines = piped(confusion_text(nothing, ["a", "b", "c"], "t", colored=False, width=60)).splitlines()
    assert [line.strip() for line in lines if line[:1] in ("a", "b", "c")] == ["a", "b", "c"]


def test_the_error_is_told_in_the_title_however_long_that_is() -> None:
    long, short = (figures.drawn(lambda title=title: draw_calibration(*BINS, title, "svg")) for title in (TITLE, ""))
    assert long.get_suptitle().startswith("Expected calibration error 0.126: ")
    assert short.get_suptitle() == "Expected calibration error 0.126"


def test_nothing_at_all_can_be_calibrated() -> None:
    empty = (np.full(5, np.nan), np.full(5, np.nan), np.zeros(5, dtype=int), 0.0)
    assert draw_calibration(*empty, "t", "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("name", TEXTS)
def test_a_picture_in_a_terminal_is_never_wider_than_it_and_cannot_steer_it(name: str, width: int) -> None:
    for colored in (False, True):
        text = re.sub("\x1b\\[[0-9;]*m", "", render_ansi(TEXTS[name](colored, width), colored=colored, width=width))
        assert max(cell_len(line) for line in text.splitlines()) <= width
        assert not set(text) & set(STEERING) - {"\n"}


def test_a_terminal_shows_the_shares_of_each_row_in_hundredths() -> None:
    lines = piped(confusion_text(np.array([[3, 1], [0, 5]]), ["no", "yes"], "t", colored=False, width=60)).splitlines()
    assert [line.split() for line in lines if line.lstrip().startswith(("no ", "yes "))] == [
        ["no", "75", "25"],
        ["yes", ".", "100"],
    ]


def test_where_the_matrix_does_not_fit_the_commonest_confusions_are_listed() -> None:
    counts = np.eye(60, dtype=int) * 50
    counts[7, 3], counts[2, 9], counts[9, 2] = 50, 5, 4
    names = [f"class{i}" for i in range(60)]
    shown = partial(confusion_text, counts, names, "t", colored=False)
    lines = [line.split() for line in piped(shown(width=80)).splitlines()]
    assert lines[2:5] == [
        ["class7", "class3", "50", "0.500"],
        ["class2", "class9", "5", "0.091"],
        ["class9", "class2", "4", "0.074"],
    ]
    assert "Confusions of 60 classes: all shown." in piped(shown(width=80))
    assert "class59" in piped(shown(width=400), width=400)
    wrong = piped(confusion_text(np.ones((60, 60), dtype=int), names, "t", colored=False, width=80))
    assert f"the 20 most frequent of {60 * 59} shown" in wrong
