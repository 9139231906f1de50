"""Tokens beside a picture: every character visible, none steering, cut to the room there is."""

import re

import pytest
from hostile import HOSTILE, STEERING
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from mini_tf.drawing.labels import caption, label
from mini_tf.drawing.plotting import figure_label, glyphs_of_figure, has_glyph


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (" the", "·the"),
        ("New York", "New·York"),
        ("\n", "↵"),
        ("a\tb", "a⇥b"),
        ("", "⟨⟩"),
        ("\x1b[31m", "⟨1B⟩[31m"),
        ("\x9b", "⟨9B⟩"),
        ("\u202e", "⟨202E⟩"),
        ("\ud800", "⟨D800⟩"),
        ("a\u200bb\xa0c", "a⟨200B⟩b⟨A0⟩c"),
        ("\u0301", "◌\u0301"),
        ("\u3164a\u2800", "⟨3164⟩a⟨2800⟩"),
        ("a\u034f\U000e0100", "a⟨34F⟩⟨E0100⟩"),
        ("[/INST]", "[/INST]"),
        ("漢字🙂", "漢字🙂"),
    ],
)
def test_a_label_shows_what_would_not_be_seen(token: str, shown: str) -> None:
    assert label(token) == shown
    assert label(shown) == shown


def test_a_title_keeps_its_blanks() -> None:
    assert caption("the head \x07 of\nall") == "the head ⟨07⟩ of↵all"


@pytest.mark.parametrize(
    ("token", "width", "shown"),
    [
        ("bears", 5, "bears"),
        ("bears", 4, "bea…"),
        ("漢字学", 5, "漢字…"),
        ("漢字学", 4, "漢…"),
        ("\x1b\x1b", 5, "⟨1B⟩…"),
    ],
)
def test_a_label_is_cut_by_the_cells_it_takes(token: str, width: int, shown: str) -> None:
    assert label(token, width) == shown


@given(st.text(alphabet=st.characters()), st.integers(1, 20))
def test_no_label_steers_or_is_wider_than_its_room(token: str, width: int) -> None:
    whole = label(token)
    assert whole
    assert not set(whole) & set(STEERING)
    assert cell_len(label(token, width)) <= width


def test_a_flood_of_accents_is_cut_too() -> None:
    assert len(label("é" + "\u0301" * 2000, 12)) <= 12


@pytest.mark.parametrize("token", HOSTILE)
def test_a_figures_label_has_only_characters_of_its_font(token: str) -> None:
    shown = figure_label(token)
    assert all(has_glyph(character) for character in shown)
    assert not set(shown) & set(STEERING)


def test_characters_that_a_figure_cannot_draw_become_their_numbers_and_are_told() -> None:
    assert figure_label("漢é🙂") == "⟨6F22⟩é⟨1F642⟩"
    with glyphs_of_figure() as glyphs:
        assert [figure_label(text) for text in ("the 漢", "漢🙂", "\x1b")] == ["the·⟨6F22⟩", "⟨6F22⟩⟨1F642⟩", "⟨1B⟩"]
    assert [*glyphs.missing] == ["漢", "🙂"]
    assert re.fullmatch(r"⟨6F22⟩.*…", figure_label("漢字学", 9))
