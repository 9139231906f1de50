"""Stop strings: whatever comes in whichever pieces, the text ends before the one that is complete first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_tf.data.tokenization.stream import StopStringFilter


def let_through(stops: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    stopping = StopStringFilter(stops)
    return [*map(stopping.push, pieces), stopping.end()], stopping.stopped


def cut(text: str, stops: list[str]) -> str:
    """The text before the stop string whose last character comes first; of several that end there, maximum."""
    for end in range(len(text) + 1):
        if found := [stop for stop in stops if text[:end].endswith(stop)]:
            return text[: end - max(map(len, found))]
    return text


@given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.lists(st.text("abc", max_size=5), max_size=8))
def test_the_text_ends_before_the_stop_string_that_is_complete_first(stops: list[str], pieces: list[str]) -> None:
    told, stopped = let_through(stops, pieces)
    text = "".join(pieces)
    assert "".join(told) == cut(text, stops)
    assert stopped == any(stop in text for stop in stops)


@given(st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3), st.text("abc", max_size=12))
def test_text_is_held_back_only_while_it_may_become_a_stop_string(stops: list[str], text: str) -> None:
    stopping, told = StopStringFilter(stops), ""
    for n, character in enumerate(text, 1):
        told += stopping.push(character)
        if stopping.stopped:
            break
        begun = [k for k in range(n + 1) if any(stop.startswith(text[n - k : n]) for stop in stops)]
        assert told == text[: n - max(begun)]


def test_an_empty_stop_string_is_no_stop_string() -> None:
    with pytest.raises(ValueError, match="empty stop string"):
        StopStringFilter(["a", ""])
