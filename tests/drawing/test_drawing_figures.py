"""Pictures in files: the same bytes anywhere, well-formed whatever the tokens, of a size that can be opened."""

import hashlib
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from hostile import HOSTILE, STEERING

from mini_tf.drawing.canvas import figure_bytes, text_width, wrap_caption
from mini_tf.drawing.classifier_plots import draw_calibration, draw_confusion
from mini_tf.drawing.curves import draw_curves
from mini_tf.drawing.heat_maps import draw_panels
from mini_tf.drawing.look import DARK, Look, drawn_as
from mini_tf.drawing.map_layout import Size, layout_of
from mini_tf.drawing.panel import Curves, Panel, PanelGrid, QueryWeights, Scale
from mini_tf.drawing.plotting import Figure, figure_caption, figure_label
from mini_tf.drawing.query_weights import draw_query_weights
from mini_tf.system.errors import UsageFault

pytestmark = pytest.mark.filterwarnings("ignore:no font that matplotlib finds")
ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
SIZE = len(HOSTILE)
WEIGHTS = np.random.default_rng(0).dirichlet([0.2] * SIZE, SIZE)
TITLE = "".join(HOSTILE)
COUNTS = np.random.default_rng(0).poisson(0.2, (SIZE, SIZE))

DRAWN: dict[str, Callable[[str], bytes]] = {
    "map": lambda suffix: draw_panels(
        PanelGrid([Panel(TITLE, HOSTILE, HOSTILE, WEIGHTS, TITLE)], Scale(label=TITLE), TITLE), suffix
    ),
    "maps": lambda suffix: draw_panels(
        PanelGrid(
            [Panel(f"L{i}", HOSTILE[:9], HOSTILE[:9], WEIGHTS[i : i + 9, :9]) for i in range(4)],
            Scale(-1, 1, True),
            TITLE,
        ),
        suffix,
    ),
    "unlike maps": lambda suffix: draw_panels(
        PanelGrid(
            [
                Panel("a", HOSTILE[:3], HOSTILE, WEIGHTS[:3], group=TITLE, sides=(TITLE, TITLE)),
                Panel("b", HOSTILE, HOSTILE[:3], WEIGHTS[:, :3]),
            ],
            Scale(),
            TITLE,
        ),
        suffix,
    ),
    "indexed maps": lambda suffix: draw_panels(
        PanelGrid(
            [Panel("a", HOSTILE[:2], HOSTILE * 4, np.tile(WEIGHTS[:2], 4), line=0)] * 2,
            Scale(high=0.1, open_end=True),
            TITLE,
            TITLE,
            HOSTILE,
        ),
        suffix,
    ),
    "captions": lambda suffix: draw_panels(
        PanelGrid([Panel(TITLE, HOSTILE, HOSTILE, WEIGHTS, tokens=False)], Scale(), TITLE), suffix
    ),
    "fan": lambda suffix: draw_query_weights(
        QueryWeights(TITLE, TITLE, 3, HOSTILE, WEIGHTS[:8], [(one[:20], one[:20]) for one in HOSTILE[:8]]), suffix
    ),
    "curves": lambda suffix: draw_curves(
        [
            Curves(
                TITLE,
                range(5),
                TITLE,
                TITLE,
                {token: [i, 2.0, float("nan"), i / 2, 1] for i, token in enumerate(HOSTILE)},
            )
        ],
        suffix,
    ),
    "two logarithmic curves": lambda suffix: draw_curves(
        [
            Curves(TITLE, [2, 4], TITLE, TITLE, {token: [1, i + 1.0] for i, token in enumerate(HOSTILE[n:])}, True)
            for n in (0, 2)
        ],
        suffix,
    ),
    "confusion": lambda suffix: draw_confusion(COUNTS, HOSTILE, TITLE, suffix),
    "calibration": lambda suffix: draw_calibration(
        *(np.array([np.nan, 0.5, 0.8]),) * 2, np.array([0, 4, 10]), 0.126, TITLE, suffix
    ),
}


@cache
def drawn(name: str, suffix: str) -> bytes:
    """One of the pictures above on a dark ground, drawn once for all tests."""
    with drawn_as(Look(dark=True)):
        return DRAWN[name](suffix)


@pytest.mark.parametrize("name", DRAWN)
def test_hostile_words_make_a_dark_svg_in_which_nothing_can_act_or_is_white(name: str) -> None:
    """Nothing but the colors of the data is light or dark on its own."""
    text = drawn(name, "svg").decode("utf-8")
    assert not set(text) & set(STEERING) - {"\n"}
    elements = list(ElementTree.fromstring(text).iter())
    tags = {element.tag.removeprefix(SVG) for element in elements}
    assert tags & {"script", "foreignObject", "a", "img", "iframe"} == set()
    assert [name for element in elements for name in element.attrib if name.startswith("on")] == []
    assert figure_caption(TITLE, 120)[:10] in " ".join(text_of(text.encode()))
    assert DARK.paper in text
    assert DARK.ink in text
    assert [element for element in elements if element.tag != f"{SVG}text" and "#ffffff" in str(element.attrib)] == []


def test_words_in_an_svg_are_text_that_can_be_searched() -> None:
    words = {element.text for element in ElementTree.fromstring(drawn("map", "svg")).iter(f"{SVG}text")}
    assert {figure_label(token, 18) for token in HOSTILE} <= words
    assert {"$x$", "⟨1B⟩[31m", "⟨⟩", "·the", "_private"} <= words


def test_a_png_says_that_minitf_drew_it_but_not_when_nor_which_version() -> None:
    png = drawn("curves", "png")
    assert png.startswith(b"\x89PNG")
    assert not any(chunk in png for chunk in (b"tIME", b"iTXt", b"atplotlib"))
    assert (png.count(b"tEXt"), png.count(b"tEXtSoftware\0minitf")) == (1, 1)


def test_drawing_leaves_the_settings_of_the_process_alone() -> None:
    before = dict(matplotlib.rcParams)
    figure_bytes(Figure, "svg")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(("inches", "dots"), [((30, 1), (4200, 140)), ((1, 29), (144, 4200)), ((28, 1), (4200, 150))])
def test_a_png_has_150_dots_per_inch_and_at_most_4200_on_a_side(inches: Size, dots: Size) -> None:
    png = figure_bytes(lambda: Figure(figsize=inches), "png")
    assert struct.unpack(">II", png[16:24]) == dots


def digests() -> str:
    figures = (("fan", "svg"), ("curves", "png"), ("map", "pdf"))
    return "\n".join(f"{figure} {hashlib.sha256(drawn(*figure)).hexdigest()}" for figure in figures)


def test_two_processes_draw_the_same_bytes_whatever_the_users_settings(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text(
        "font.size: 30\ntext.parse_math: True\nsvg.fonttype: path\nsavefig.bbox: tight\naxes.facecolor: red\n"
    )
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{Path(__file__).parent}",
        "PYTHONHASHSEED": "7",
        "MATPLOTLIBRC": str(tmp_path),
        "MPLBACKEND": "no_such_backend",  # notebooks export their own to every command that they start
        "LC_ALL": "C",
    }
    code = "import mini_tf.drawing.canvas, test_drawing_figures as here; print(here.digests())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout.strip() == digests()


def test_captions_keep_their_blanks_and_tokens_show_them() -> None:
    names, values = ["1 animal", "2 that cat"], np.eye(2)
    shown = [
        text_of(draw_panels(PanelGrid([Panel("t", names, names, values, tokens=tokens)], Scale(), "t"), "svg"))
        for tokens in (False, True)
    ]
    assert [texts.count("2 that cat") for texts in shown] == [2, 0]
    assert [texts.count("2·that·cat") for texts in shown] == [0, 2]


def test_numbers_of_a_scale_up_to_2_are_hundredths_and_none_is_a_negative_zero() -> None:
    panel = Panel("t", ["a"], ["b", "c", "d", "e"], np.array([[1.234, -0.5, -0.001, 0.0]]))
    texts = text_of(draw_panels(PanelGrid([panel], Scale(-0.5, 1.3), "t"), "svg"))
    assert {"1.23", "-.50", ".00"} <= set(texts)


def text_of(svg: bytes) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize(("names", "turned"), [(["1", "2"], False), (["one", "2"], True)])
def test_names_of_columns_are_turned_unless_each_is_one_character(names: list[str], turned: bool) -> None:
    svg = draw_panels(PanelGrid([Panel("t", ["a", "b"], names, np.eye(2))], Scale(label=""), "t"), "svg")
    [column] = [one for one in ElementTree.fromstring(svg).iter(f"{SVG}text") if one.text == "2"]
    assert ("rotate(-90)" in str(column.attrib)) == turned


@pytest.mark.parametrize(("across", "tokens"), [(6, 36), (8, 22), (8, 28), (12, 16)])
def test_the_heads_of_a_model_have_their_tokens_as_labels(across: int, tokens: int) -> None:
    words = [f"token{i}" for i in range(tokens)]
    layout = layout_of([Panel(f"H{i}", words, words, np.eye(tokens), line=i // across) for i in range(across**2)])
    assert (layout.indexed, layout.every) == (False, 1)
    assert layout.size >= 6
    assert layout.cell >= 0.15 * layout.size / 8 - 1e-6, "a line of text"


@pytest.mark.parametrize(("layers", "heads"), [(1, 50), (50, 1)])
def test_the_most_maps_of_a_figure_have_room_each_and_more_are_refused(layers: int, heads: int) -> None:
    words = ["a", "b"] * 20
    panels = [Panel(f"{i}", words, words, np.eye(40), line=i // heads) for i in range(layers * heads)]
    assert max(layout_of(panels).extent) < 29, "with the color bar less than 30 inches"
    more = replace(panels[-1], line=50 if heads == 1 else 0)
    with pytest.raises(UsageFault, match=r"a figure has room for 50 rows of 50") as refusal:
        layout_of([*panels, more])
    assert refusal.value.hint == "select heads by --layer and --head"


def test_maps_stand_apart_as_titles_need_and_wide_sections_below_another() -> None:
    def pitch(title: str, n: int = 2) -> float:
        layout = layout_of([Panel(title, ["a"], ["b"], np.eye(1), line=0)] * n)
        return layout.pitch(layout.lines[0][0])[0]

    assert pitch("a") < pitch("a longer title") < pitch("W" * 50) == pitch("W" * 60)
    assert pitch("a longer title", 5) == pitch("a", 5) == pitch("a"), "many maps stand close"
    for rows, columns, n_lines in ((1, 30, 2), (30, 1, 1)):
        panels = [Panel("t", ["r"] * rows, ["c"] * columns, np.ones((rows, columns)), group=word) for word in "ab"]
        assert len(layout_of(panels).lines) == n_lines


def test_a_scale_that_ends_below_its_largest_value_says_so() -> None:
    panel = Panel("t", ["a", "b"], ["a", "b"], np.array([[1.0, 0.0], [0.1, 0.05]]))
    said = "Colours are linear from 0 to 0.1; larger values have the last colour."
    assert said in text_of(draw_panels(PanelGrid([panel], Scale(high=0.1, open_end=True), "t"), "svg"))
    assert said not in text_of(draw_panels(PanelGrid([panel], Scale(), "t"), "svg"))


def test_a_caption_is_broken_within_its_width_and_cut_after_its_last_line() -> None:
    words = " ".join(f"word{i}" for i in range(60))
    whole = wrap_caption(words, 3.0, 40)
    assert text_width(words, 16.0) == pytest.approx(2 * text_width(words, 8.0), rel=0.01)
    assert " ".join(whole) == words
    assert all(text_width(line) <= 3.0 for line in whole)
    assert wrap_caption(words, 3.0, 2) == [whole[0], wrap_caption(words, 3.0, 2)[1]]
    assert wrap_caption(words, 3.0, 2)[1].endswith("…")
    one = wrap_caption("漢" * 5 + "W" * 200, 2.0, 50)
    assert len(one) > 5
    assert "".join(one) == "⟨6F22⟩" * 5 + "W" * 200
    assert all(text_width(line) <= 2.0 for line in one)
    assert all(text_width(line + after[0]) > 2.0 for line, after in pairwise(one)), "no line could be longer"


def test_a_pdf_has_its_fonts_as_truetype_and_no_date() -> None:
    pdf = drawn("map", "pdf")
    assert pdf.startswith(b"%PDF")
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert not any(word in pdf for word in (b"CreationDate", b"atplotlib"))
