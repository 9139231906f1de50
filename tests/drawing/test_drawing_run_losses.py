"""The loss curve of a run, read back from its SVG."""

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

import pytest

from mini_tf.drawing.run_losses import loss_curve, running_mean

SVG = "{http://www.w3.org/2000/svg}"
TRAIN = [(step, 5 - step / 30) for step in range(1, 91)]
VAL = [(30, 4.0), (60, 3.0), (90, 3.5)]


class Picture:
    def __init__(self, svg: bytes) -> None:
        self.root = ElementTree.fromstring(svg)
        self.texts = [(element.text, element.attrib) for element in self.root.iter(f"{SVG}text")]
        self.words = [text for text, _ in self.texts]
        self.lines = [self._points(element.attrib["points"]) for element in self.root.iter(f"{SVG}polyline")]
        self.dots = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in self.root.iter(f"{SVG}circle")]

    @staticmethod
    def _points(listed: str) -> list[tuple[float, float]]:
        return [(float(x), float(y)) for x, y in (pair.split(",") for pair in listed.split())]

    def values(self, pixels: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """The (step, loss) of places in the picture, by the numbers at its axes."""
        x = [(float(a["x"]), float(t.replace(",", ""))) for t, a in self.texts if a["y"] == "370.0"]
        y = [(float(a["y"]) - 4, float(t)) for t, a in self.texts if a["text-anchor"] == "end"]
        return [(self._along(x, across), self._along(y, down)) for across, down in pixels]

    @staticmethod
    def _along(ticks: list[tuple[float, float]], pixel: float) -> float:
        (first, low), (last, high) = ticks[0], ticks[-1]
        return low + (pixel - first) / (last - first) * (high - low)


def test_a_loss_curve_has_losses_their_running_mean_and_the_minimum() -> None:
    picture = Picture(loss_curve(TRAIN, VAL, "run", "nats"))
    raw, mean, held_out = picture.lines
    for line, points in ((raw, TRAIN), (held_out, VAL), (picture.dots, VAL)):
        for pair, truth in zip(picture.values(line), points, strict=True):
            assert pair == pytest.approx(truth, abs=0.02)
    means = [loss for _, loss in picture.values(mean)]
    truth = [5 - n / 30 if n == 1 else 5 - (n - 0.5) / 30 if n == 2 else 5 - (n - 1) / 30 for n in range(1, 91)]
    assert means == pytest.approx(truth, abs=0.02)
    assert {"run", "step", "loss (nats)", "training", "validation", "3.000"} <= {*picture.words}


def test_a_running_mean_is_that_of_each_value_and_those_before() -> None:
    assert running_mean([4.0, 2.0, 0.0, 2.0], 2) == [4.0, 3.0, 1.0, 1.0]
    assert running_mean([4.0, 2.0], 1) == [4.0, 2.0]


@pytest.mark.parametrize(
    ("train", "val"),
    [
        ([], VAL),
        (TRAIN, []),
        ([(1, 2.0)], [(1, 2.0)]),
        ([(1, 1e-9), (2, 1e12)], []),
        ([(7, 0.0)], []),
        ([], [(3, -2.5)]),
        ([(1, 0.0), (12, 11.4)], []),
    ],
)
def test_all_points_lie_in_the_frame(train: list[tuple[int, float]], val: list[tuple[int, float]]) -> None:
    picture = Picture(loss_curve(train, val, "run", ""))
    assert "loss" in picture.words
    assert ("training" in picture.words, "validation" in picture.words) == (bool(train), bool(val))
    places = [place for line in (*picture.lines, picture.dots) for place in line]
    assert len(places) >= len(train) + len(val)
    assert all(64 <= x <= 700 and 48 <= y <= 352 for x, y in places)
    assert all(0 < float(a["x"]) <= 700 for _, a in picture.texts), "words begin and numbers stand within the picture"
    for ticks in (
        [a for _, a in picture.texts if a["y"] == "370.0"],
        [a for _, a in picture.texts if a["text-anchor"] == "end"],
    ):
        assert 2 <= len(ticks) <= 8


def test_losses_that_are_not_finite_are_left_out() -> None:
    broken = [*TRAIN[:5], (6, math.nan), (7, math.inf), *TRAIN[7:]]
    whole = [*TRAIN[:5], *TRAIN[7:]]
    assert loss_curve(broken, [(1, math.nan)], "run", "") == loss_curve(whole, [], "run", "")


def test_a_long_run_has_all_its_spikes_in_a_small_file() -> None:
    losses = [(step, 100.0 if step == 7_777 else 1.0 + step % 2) for step in range(1, 50_001)]
    svg = loss_curve(losses, [], "run", "nats")
    assert len(svg) < 80_000
    raw = Picture(svg).lines[0]
    assert min(y for _, y in raw) < 60
    assert [x for x, _ in raw] == sorted(x for x, _ in raw)


def test_a_title_cannot_leave_its_element_or_the_picture() -> None:
    svg = loss_curve(TRAIN, [], "</text><script>&\x1b\ud800" + "x" * 300, "nats")
    assert not re.search(rb"<script|\x1b", svg)
    title = Picture(svg).words[0]
    assert title is not None
    assert title.startswith("</text><script>&")
    assert len(title) < 90
    assert Picture(loss_curve(TRAIN, [], "x" * 71, "nats")).words[0] == "x" * 69 + "…"
    assert Picture(loss_curve(TRAIN, [], "x" * 70, "nats")).words[0] == "x" * 70
