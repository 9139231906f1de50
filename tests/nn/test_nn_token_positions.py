"""Positions of tokens, by what each operation says of segments and positions."""

from itertools import product

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mini_tf.nn.token_cache import append_tokens, empty_cache, select_tokens, token_positions_of
from mini_tf.nn.token_positions import TokenPositions, Visibility

CPU = torch.device("cpu")
ROWS = st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=2, max_size=2)
"""Segments of two rows, in any order: padding to the left, to the right and between documents."""


def written(token_positions: TokenPositions, batch: int = 2) -> list[list[list[int]]]:
    """Segments and positions of all rows."""
    return [part.tolist() for part in token_positions.tensors(batch, CPU)]


def strange() -> TokenPositions:
    """Whose positions follow from nothing else."""
    return TokenPositions(3, 0, torch.tensor([[1, 1, 2], [0, 4, 4]]), torch.tensor([[7, 8, 0], [0, 5, 6]]))


@settings(deadline=None, max_examples=50)
@given(rows=ROWS)
def test_positions_count_from_0_within_each_run_of_one_number(rows: list[list[int]]) -> None:
    expected = []
    for row in rows:
        positions: list[int] = []
        for i, segment in enumerate(row):
            positions.append(positions[-1] + 1 if i and row[i - 1] == segment else 0)
        expected.append(positions)
    assert written(TokenPositions.packed(torch.tensor(rows))) == [rows, expected]


def test_the_number_of_documents_is_known_up_to_the_next_power_of_two() -> None:
    """A compiled graph reads so many."""
    packed = [TokenPositions.packed(torch.arange(1, n + 1)[None]) for n in range(1, 6)]
    assert [token_positions.max_segment for token_positions in packed] == [1, 2, 4, 4, 8]


def test_positions_are_joined_as_what_they_are() -> None:
    """Plain ones stay plain only where the second goes on where the first ended."""
    joined = TokenPositions(2, 3).concat(TokenPositions(2, 5), 2, CPU)
    assert joined.plain
    assert (joined.length, joined.start) == (4, 3)
    apart = TokenPositions(2, 3).concat(TokenPositions(2, 9), 2, CPU)
    assert written(apart) == [[[1] * 4] * 2, [[3, 4, 9, 10]] * 2]
    assert written(strange().concat(TokenPositions(2, 3), 2, CPU)) == [
        [[1, 1, 2, 1, 1], [0, 4, 4, 1, 1]],
        [[7, 8, 0, 3, 4], [0, 5, 6, 3, 4]],
    ]
    assert TokenPositions(0).concat(strange(), 2, CPU).positions is not None


def test_the_last_positions_stand_where_they_stood() -> None:
    assert written(TokenPositions(5, 2).last(3)) == [[[1] * 3] * 2, [[4, 5, 6]] * 2]
    assert TokenPositions(5, 2).last(3).plain
    assert written(strange().last(2)) == [[[1, 2], [4, 4]], [[8, 0], [5, 6]]]
    for token_positions in (TokenPositions(5, 2), strange()):
        assert token_positions.last(token_positions.length) is token_positions
        assert token_positions.last(99) is token_positions


def test_selected_rows_keep_their_segments_and_positions() -> None:
    rows = torch.tensor([1, 0, 1])
    assert written(strange().select(rows), 3) == [[[0, 4, 4], [1, 1, 2], [0, 4, 4]], [[0, 5, 6], [7, 8, 0], [0, 5, 6]]]
    assert written(TokenPositions(2, 4).select(rows), 3) == [[[1, 1]] * 3, [[4, 5]] * 3]


def test_merged_rows_stand_behind_each_other() -> None:
    assert written(TokenPositions(2, 4).merge_rows(6, 3, CPU)) == [[[1] * 6] * 2, [[4, 5] * 3] * 2]
    for rows in (1, 2, 3):
        assert written(TokenPositions(2, 4).merge_rows(4 * rows, 4, CPU), rows) == [
            [[1] * 8] * rows,
            [[4, 5] * 4] * rows,
        ]
    assert written(strange().merge_rows(2, 2, CPU), 1) == [[[1, 1, 2, 0, 4, 4]], [[7, 8, 0, 0, 5, 6]]]


def test_positions_on_another_device_are_the_same_positions() -> None:
    def shapes(token_positions: TokenPositions) -> list[tuple[int, ...] | None]:
        tensors: list[Tensor | None] = [token_positions.segments, token_positions.positions]
        return [None if t is None else tuple(t.shape) for t in tensors if t is None or t.device.type == "meta"]

    assert shapes(strange().to(torch.device("meta"))) == [(2, 3), (2, 3)]
    assert (
        TokenPositions(3, 2).to(torch.device("meta")).length,
        TokenPositions(3, 2).to(torch.device("meta")).start,
    ) == (3, 2)


def test_layers_with_windows_of_several_sizes_see_each_their_own() -> None:
    view, index = Visibility(False, TokenPositions(9), TokenPositions(9)), torch.arange(9)
    for window in (2, 5, 2):
        seen = view.with_window(window).visible(index[:, None], index[None])[0]
        assert seen.tolist() == [[abs(query - key) <= window for key in range(9)] for query in range(9)]
    assert view.with_window(2) is view.with_window(2)


def test_what_a_view_says_of_itself_is_what_it_shows() -> None:
    """Of plain positions, by brute force: the properties choose a kernel that is given no mask."""
    starts, lengths = (0, 1, 3), (1, 2, 3)
    for causal, window, own_start, own_length, start, length in product(
        (False, True), (None, 1, 2), starts, lengths, starts, lengths
    ):
        view = Visibility(causal, TokenPositions(own_length, own_start), TokenPositions(length, start), window)
        distances = [[q - k for k in range(start, start + length)] for q in range(own_start, own_start + own_length)]
        left = [[not causal or distance >= 0 for distance in row] for row in distances]
        seen = [
            [sees and (window is None or abs(d) <= window) for sees, d in zip(*rows, strict=True)]
            for rows in zip(left, distances, strict=True)
        ]
        index = torch.arange(own_length)[:, None], torch.arange(length)[None]
        assert view.visible(*index)[0].tolist() == seen
        everything = all(all(row) for row in seen)
        square = causal and own_length == length and seen == [[k <= q for k in range(length)] for q in range(length)]
        assert view.windowed or seen == left
        if not causal and own_start == start == 0:
            assert view.windowed == (seen != left)
        if window is None:
            assert (view.full, view.triangular) == (everything, square and own_start == start)
        assert everything or not view.full
        assert square or not view.triangular


def test_selected_tokens_of_a_cache_have_padding_before_them_where_a_row_has_fewer() -> None:
    state = empty_cache(x=torch.empty(2, 0, 1)) | {"other": 1}
    state, _ = append_tokens(
        state, Visibility(True, TokenPositions(4), TokenPositions(4)), x=torch.arange(8.0).view(2, 4, 1)
    )
    kept = torch.tensor([[True, False, True, True], [False, False, False, True]])
    selected = select_tokens(state, kept, 3)
    assert selected["x"][0].flatten().tolist() == [0, 2, 3]
    assert selected["x"][1, -1].item() == 7
    positions = token_positions_of(selected)
    assert positions.length == 3
    assert positions.segments is not None
    assert positions.positions is not None
    assert positions.segments.tolist() == [[1, 1, 1], [0, 0, 1]]
    assert positions.positions[0].tolist() == [0, 2, 3]
    assert selected["other"] == 1
