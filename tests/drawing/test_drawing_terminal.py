"""Pictures in a terminal: safe whatever the tokens, never wider than it, readable with and without colour."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from hostile import HOSTILE, STEERING
from rich.cells import cell_len
from rich.style import Style
from rich.table import Table
from rich.text import Text

from mini_tf.drawing.panel import Curves, HeadGrid, Panel, QueryWeights, Scale
from mini_tf.drawing.terminal import curves, head_grid, heat_map, query_weights, sentence, table, terminal_color
from mini_tf.drawing.text_layout import render_ansi

COLOR_CODE = re.compile("\x1b\\[[0-9;]*m")
WORDS = ["The", " bears", " ate"]


def causal(size: int) -> np.ndarray:
    """Rows of weights, none to the right of the diagonal."""
    scores = np.random.default_rng(0).normal(size=(size, size)) * 2
    weights = np.exp(scores) * np.tril(np.ones((size, size)))
    return weights / weights.sum(1, keepdims=True)


def piped(picture: Text, width: int = 80) -> str:
    """A picture as a pipe gets it."""
    return render_ansi(picture, colored=False, width=width)


SIZE = len(HOSTILE)
PICTURES: dict[str, Callable[[bool, int], Text]] = {
    "heat_map": lambda colored, width: heat_map(
        Panel("".join(HOSTILE), HOSTILE, HOSTILE, causal(SIZE), note=" ".join(HOSTILE)),
        Scale(label="".join(HOSTILE)),
        colored=colored,
        width=width,
    ),
    "values": lambda colored, width: heat_map(
        Panel("t", HOSTILE, HOSTILE, 100 * causal(SIZE)),
        Scale(-50, 100, True),
        colored=colored,
        width=width,
        values=True,
    ),
    "captions": lambda colored, width: heat_map(
        Panel("t", HOSTILE, HOSTILE, causal(SIZE), tokens=False), Scale(), colored=colored, width=width
    ),
    "head_grid": lambda colored, width: head_grid(
        HeadGrid(
            "".join(HOSTILE), HOSTILE, HOSTILE, causal(SIZE), [HOSTILE] * SIZE, {token: token for token in HOSTILE}
        ),
        colored=colored,
        width=width,
    ),
    "fan": lambda colored, width: query_weights(
        QueryWeights("\x1b[31m", "[bold]", 3, HOSTILE, causal(SIZE), HOSTILE), colored=colored, width=width
    ),
    "curves": lambda colored, width: curves(
        Curves(
            "\x9b",
            range(300),
            "\x1b",
            "\u202e",
            {token: np.linspace(i, -i, 300).tolist() for i, token in enumerate(HOSTILE)},
        ),
        colored=colored,
        width=width,
    ),
    "table": lambda colored, width: table(HOSTILE, [HOSTILE, [0.5] * SIZE], colored=colored, width=width),
    "narrow table": lambda colored, width: table(
        ["a", "b"], [[token, 1.5] for token in HOSTILE], colored=colored, width=width
    ),
}


@pytest.mark.parametrize("width", [40, 80, 133])
@pytest.mark.parametrize("colored", [True, False])
@pytest.mark.parametrize("name", PICTURES)
def test_no_token_steers_the_terminal_or_makes_a_line_too_long(name: str, colored: bool, width: int) -> None:
    shown = render_ansi(PICTURES[name](colored, width), colored=colored, width=width)
    plain = COLOR_CODE.sub("", shown)
    assert (plain != shown) is colored
    assert not set(plain) & set(STEERING) - {"\n"}
    assert max(map(cell_len, plain.splitlines())) <= width
    assert shown.endswith("\n")
    if not colored:
        assert [line for line in shown.splitlines() if line != line.rstrip()] == []


def test_the_gate_stops_what_a_careless_caller_lets_through() -> None:
    careless = Table("[bold]head[/bold]", "\x1b[31mred")
    careless.add_row(Text("\x9b\x1b]0;x\x07"), Text("a", Style(link="http://x/\x1b[31m")))
    for renderable in (careless, "[link=http://x]\x1b[31m:smile:", Text("\u202e\x1b")):
        shown = COLOR_CODE.sub("", render_ansi(renderable, colored=True, width=80).replace("\n", ""))
        assert not set(shown) & (set(STEERING) - {"\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\ufe0f"})
        assert "http://x/" not in shown
    assert "[link=http://x]\\x1b[31m:smile:" in render_ansi("[link=http://x]\x1b[31m:smile:", colored=False, width=80)


def test_a_map_without_colour_says_which_word_looks_where() -> None:
    values = np.array([[1.0, np.nan, np.nan], [0.55, 0.45, np.nan], [0.0, 0.05, 0.95]])
    panel = Panel("L0 H1", WORDS, WORDS, values, note="A row's word looks at the columns' words.")
    assert piped(heat_map(panel, Scale(), colored=False, width=80)) == (
        "L0 H1\n"
        "         ·\n"
        "         b\n"
        "         e ·\n"
        "       T a a\n"
        "       h r t\n"
        "       e s e\n"
        "   The @@\n"
        "·bears ++==\n"
        "  ·ate     @@\n"
        "attention weight  0 ' .:-=+*#%@' 1\n"
        "A row's word looks at the columns' words.\n"
    )


def test_numbers_in_a_map_are_hundredths() -> None:
    panel = Panel("", ["a", "b"], ["c", "d"], np.array([[1.0, 0.0], [0.256, np.nan]]))
    shown = piped(heat_map(panel, Scale(), colored=False, width=80, values=True))
    assert shown == "    c   d\na 100   .\nb  26\nattention weight (hundredths)\n"


def test_numbers_up_to_2_are_hundredths_and_farther_whole_and_no_zero_is_negative() -> None:
    panel = Panel("", ["a"], ["b", "c", "d", "e"], np.array([[1.234, 0.999, -0.004, -0.0]]))
    shown = piped(heat_map(panel, Scale(-0.25, 2.0), colored=False, width=80, values=True))
    assert shown == "    b   c   d   e\na 123 100   0   .\nattention weight (hundredths)\n"
    shown = piped(heat_map(panel, Scale(-0.25, 2.5), colored=False, width=80, values=True))
    assert shown == "  b c d e\na 1 1 0 .\nattention weight (whole numbers)\n"
    assert "-0" not in piped(heat_map(panel, Scale(-0.0, 0.0, diverging=True), colored=False, width=80))


def test_captions_of_rows_and_columns_keep_their_blanks() -> None:
    panel = Panel("", ["1 animal"], ["3 x"], np.array([[0.5]]), tokens=False)
    assert piped(heat_map(panel, Scale(), colored=False, width=80)).splitlines()[:4] == [
        "         3",
        "",
        "         x",
        "1 animal ++",
    ]


@pytest.mark.parametrize(("width", "room"), [(40, 8), (80, 16), (200, 40)])
def test_names_of_rows_have_a_fifth_of_the_width_and_at_least_8_cells(width: int, room: int) -> None:
    name, values = "x" * 50, np.array([[0.5]])
    shown = piped(heat_map(Panel("", [name], ["c"], values), Scale(), colored=False, width=width), width)
    assert f"{'x' * (room - 1)}… ++" in shown
    cells = HeadGrid("t", [name], ["H0"], values, [["p"]], {}, Scale())
    assert f"{'x' * (room - 1)}…  p" in piped(head_grid(cells, colored=False, width=width), width)


def test_names_of_columns_have_at_most_8_letters_and_stand_on_their_cells() -> None:
    shown = piped(
        heat_map(
            Panel("", ["r"], ["abcdefgh", "abcdefghi", "z"], np.array([[0.0, 0.5, 1.0]])),
            Scale(),
            colored=False,
            width=80,
        )
    )
    lines = shown.splitlines()
    assert lines[:8] == ["  a a", "  b b", "  c c", "  d d", "  e e", "  f f", "  g g", "  h ⋮ z"]
    assert lines[8] == "r   ++@@"


def test_a_map_without_rows_is_drawn_with_values_too() -> None:
    assert piped(
        heat_map(Panel("t", [], [], np.zeros((0, 0))), Scale(), colored=False, width=80, values=True)
    ).startswith("t\n")


def test_on_a_diverging_scale_a_minus_stands_for_the_sign() -> None:
    panel, scale = Panel("", ["a"], ["b", "c", "d"], np.array([[-1.0, 0.0, 0.95]])), Scale(-0.5, 1, True, "cosine")
    assert (
        piped(heat_map(panel, scale, colored=False, width=80))
        == "  b c d\na -@  @@\ncosine  -1 '-@' .. 0 ' .:~=o*#%@' 1\n"
    )


def test_a_map_wider_than_the_terminal_shows_a_window_and_says_so() -> None:
    words = [f" w{i}" for i in range(100)]
    shown = piped(heat_map(Panel("", words, words, causal(100)), Scale(), colored=False, width=80))
    assert "·w36 " in shown
    assert "·w37 " not in shown
    assert "Only the first 37 of 100 rows and 37 of 100 columns are shown; a wider" in shown


HEADS = HeadGrid(
    "t",
    ["L0"],
    ["H0", "H1"],
    np.array([[0.25, 1.0]]),
    [["p", "f"]],
    {"p": "previous token", "f": "first token"},
    Scale(label="entropy"),
)


def test_colours_are_of_the_256_that_every_terminal_has_and_letters_stand_out_from_them() -> None:
    shown = render_ansi(head_grid(HEADS, colored=True, width=80), colored=True, width=80)
    assert "L0 \x1b[38;5;231;48;5;24m p \x1b[0m\x1b[38;5;16;48;5;226m f \x1b[0m\n" in shown
    assert shown.endswith("p previous token  f first token\n")


def test_the_legend_of_colours_goes_from_the_least_to_the_greatest() -> None:
    key = heat_map(Panel("t", ["a"], ["b"], np.zeros((1, 1))), Scale(-2.0, 3.0), colored=True, width=80)
    shown = [str(part.style).split()[-1] for part in key.spans[-18:]]
    assert (shown[0], shown[-1]) == tuple(str(terminal_color(end, Scale(-2.0, 3.0)).name) for end in (-2.0, 3.0))
    assert len(dict.fromkeys(shown)) == 9


def test_the_values_of_the_heads_stand_behind_their_letters_without_colour() -> None:
    shown = piped(head_grid(HEADS, colored=False, width=80))
    assert shown == "t\n     H0    H1\nL0  p  25 f 100\nentropy (hundredths)\np previous token  f first token\n"


def test_a_terminals_colours_grow_lighter_with_the_number() -> None:
    luminance = [
        sum(
            weight * (byte / 255) ** 2.2
            for weight, byte in zip((0.2126, 0.7152, 0.0722), color.get_truecolor(), strict=True)
        )
        for color in (terminal_color(value, Scale()) for value in np.linspace(0, 1, 50))
    ]
    assert luminance == sorted(luminance)
    assert len(set(luminance)) == 9
    assert terminal_color(-3, Scale()) == terminal_color(0, Scale())


def test_numbers_of_a_table_stand_right_and_words_left() -> None:
    shown = piped(table(["head", "entropy", "n"], [["L0 H1", 0.5, 4], ["漢", None, 12]], colored=False, width=80))
    assert shown == "head   entropy   n\nL0 H1    0.500   4\n漢              12\n"


def test_a_table_has_no_negative_zero_and_leaves_what_is_no_number_blank() -> None:
    shown = piped(table(["a", "b"], [[-0.0004, "x"], [-0.5, "y"], [float("nan"), "z"]], colored=False, width=80))
    assert shown == "     a  b\n 0.000  x\n-0.500  y\n        z\n"


def test_a_sentence_is_broken_between_words() -> None:
    assert piped(sentence("one two\xa0three \x1b", width=10), 10) == "one\ntwo three\n⟨1B⟩\n"


def test_a_table_cuts_words_before_it_leaves_columns_out() -> None:
    shown = piped(table(["a", "b"], [["x" * 100, 0.5]], colored=False, width=40), 40)
    assert shown == f"{'a':33}      b\n{'x' * 32}…  0.500\n"
    many = piped(table([f"column {i}" for i in range(9)], [[0.5] * 9], colored=False, width=40), 40)
    assert many.splitlines()[-2:] == ["Columns left out: column 4, column 5,", "column 6, column 7, column 8."]


def test_words_of_a_table_keep_8_cells_before_columns_are_left_out() -> None:
    rows = [["x" * 20, "y" * 12, 0.5]]
    fits = piped(table(["a", "b", "c"], rows, colored=False, width=25), 25)
    assert fits == f"{'a':8}  {'b':8}      c\n{'x' * 7}…  {'y' * 7}…  0.500\n"
    assert "Columns left out: c." in piped(table(["a", "b", "c"], rows, colored=False, width=24), 24)
    kept = piped(table(["a", "b", "c"], rows, keep=1, colored=False, width=30), 30)
    assert kept == f"{'a':13}  {'b':8}      c\n{'x' * 12}…  {'y' * 7}…  0.500\n"


def test_curves_are_bars_on_one_scale_with_their_ends() -> None:
    lines = {"up": [0.0, 0.5, 1.0], "flat": [0.5, float("nan"), 0.5]}
    shown = piped(curves(Curves("t", [0, 10, 20], "step", "entropy", lines), colored=False, width=80))
    assert shown == "t\n  up ▁▅█ 0 → 1\nflat ▅ ▅ 0.5 → 0.5\nentropy over step 0 to 20: ▁ 0, █ 1\n"


def test_the_word_that_looks_is_marked_in_its_fan() -> None:
    shown = piped(
        query_weights(
            QueryWeights("looks", "bears", 1, WORDS, np.array([[0.1, 0.85, 0.0]]), ["H0"]), colored=False, width=80
        )
    )
    assert "\n>·bears %%\n" in shown


def test_a_fan_of_more_heads_than_fit_says_what_is_left_out() -> None:
    names = [f"{layer}.{head}" for layer in range(12) for head in range(12)]
    shown = piped(
        query_weights(
            QueryWeights("looks", "bears", 1, WORDS, np.full((144, 3), 1 / 3), names), colored=False, width=80
        )
    )
    assert "Only the first 36 of 144 columns are shown" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Panel("", ["a"], ["b"], np.zeros((2, 1))),
        lambda: HeadGrid("", ["a"], ["b"], np.zeros((1, 1)), [["x", "y"]]),
        lambda: QueryWeights("", "", 0, ["a"], np.zeros((2, 1)), ["H0"]),
        lambda: Curves("", [1], "", "", {"a": [1, 2]}),
    ],
)
def test_a_picture_whose_words_do_not_fit_its_numbers_is_a_mistake(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="must"):
        wrong()
