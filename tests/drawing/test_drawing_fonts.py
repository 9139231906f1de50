"""Characters that the font of matplotlib lacks: those of other fonts are drawn, others are said once."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from figures import drawn, texts
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.font_manager import fontManager

from mini_tf.drawing import plotting
from mini_tf.drawing.heat_maps import draw
from mini_tf.drawing.panel import Panel, PanelGrid, Scale
from mini_tf.system.errors import ResultWarning

KNOWN, UNKNOWN = "漢", "字"


def font_with(file: Path, character: str) -> Path:
    """A font with one character, a square."""
    pen = TTGlyphPen(None)
    for n, corner in enumerate([(0, 0), (0, 900), (900, 900), (900, 0)]):
        (pen.lineTo if n else pen.moveTo)(corner)
    pen.closePath()
    square, font = pen.glyph(), FontBuilder(1000)
    font.setupGlyphOrder([".notdef", "square"])
    font.setupCharacterMap({ord(character): "square"})
    font.setupGlyf({".notdef": square, "square": square})
    font.setupHorizontalMetrics({".notdef": (1000, 0), "square": (1000, 0)})
    font.setupHorizontalHeader(ascent=900, descent=-100)
    font.setupNameTable({"familyName": "Square Sans", "styleName": "Regular", "psName": "SquareSans-Regular"})
    font.setupOS2()
    font.setupPost()
    font.save(file)
    return file


@pytest.fixture
def square_font(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with one font that has one ideograph."""
    file = str(font_with(tmp_path / "square.ttf", KNOWN))
    monkeypatch.delenv("MPL_IGNORE_SYSTEM_FONTS")
    monkeypatch.setattr(plotting, "findSystemFonts", lambda: [file])
    monkeypatch.setattr(fontManager, "ttflist", [*fontManager.ttflist])
    for cached in (plotting._families, plotting._family_with, plotting._code_points_of):
        cached.cache_clear()
    yield
    for cached in (plotting._families, plotting._family_with, plotting._code_points_of):
        cached.cache_clear()


def picture(text: str, token: str) -> PanelGrid:
    return PanelGrid([Panel("t", [token], [token], np.ones((1, 1)))], Scale(), "title", text)


@pytest.mark.usefixtures("square_font")
def test_characters_of_any_font_are_drawn_by_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = drawn(lambda: draw(picture(f"the {KNOWN}", KNOWN), "png"))
        png, svg, pdf = (draw(picture(f"the {KNOWN}", KNOWN), suffix) for suffix in ("png", "svg", "pdf"))
    assert f"the {KNOWN}" in texts(figure)
    assert figure.axes[0].get_xticklabels()[0].get_fontfamily() == ["DejaVu Sans", "Square Sans"]
    assert f">{KNOWN}<".encode() in svg
    assert b"SquareSans-Regular" in pdf
    assert png != draw(picture("the x", "x"), "png")


@pytest.mark.usefixtures("square_font")
def test_characters_that_no_font_has_are_code_points_and_said_once() -> None:
    with pytest.warns(ResultWarning) as said:
        figure = drawn(lambda: draw(picture(f"the word {UNKNOWN}", KNOWN + UNKNOWN), "svg"))
    assert [str(one.message) for one in said] == [
        f"no font that matplotlib finds has {UNKNOWN}; the picture has their code points"
    ]
    assert "the word ⟨5B57⟩" in texts(figure)
    assert figure.axes[0].get_xticklabels()[0].get_text() == f"{KNOWN}⟨5B57⟩"


@pytest.mark.usefixtures("square_font")
def test_a_text_of_code_points_alone_is_not_shown_above_its_tokens() -> None:
    with pytest.warns(ResultWarning):
        figure = drawn(lambda: draw(picture(UNKNOWN * 20, UNKNOWN), "svg"))
    assert texts(figure) == ["title"]
