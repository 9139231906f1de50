"""Windows of a text: every target is asked for once, and rows say truly which document each token belongs to."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_tf.data.packing import ExampleRows, Shape, Spans
from mini_tf.data.store import Store
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.data.windows import Windows

SEPARATOR = 2
PACKS = ("concat", "docs", "none")
LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=20)


def store(lengths: list[int], separated: bool = True) -> Store:
    """Documents whose tokens all differ: 10, 11, 12, ..."""
    ids: list[int] = []
    starts, token = [], 10
    for length in lengths if separated else [sum(lengths)]:
        starts.append(len(ids))
        ids += [SEPARATOR] * separated + list(range(token, token + length))
        token += length
    ids += [SEPARATOR] * separated
    return Store(None, np.array(ids), np.array(starts), sum(lengths), separated, Vocabulary(2000, 0, 1, SEPARATOR, 3))


def windows(store: Store, *shape: Any, **more: Any) -> Windows:
    return Windows(store, Shape(*shape, **more))


@settings(max_examples=40, deadline=None)
@given(lengths=LENGTHS, context=st.integers(1, 12), batch_size=st.integers(1, 5), separated=st.booleans())
@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("lookahead", [0, 1])
def test_evaluation_asks_for_every_target_exactly_once(
    pack: str, lookahead: int, lengths: list[int], context: int, batch_size: int, separated: bool
) -> None:
    text = store([*lengths, 2], separated)
    found: list[int] = []
    for rows in windows(text, context, lookahead, pack).eval_rows(batch_size):
        real = np.ones_like(rows.ids, bool) if rows.segments is None else rows.segments != 0
        found += rows.ids[:, lookahead:][real[:, lookahead:]].tolist()
    expected = text.ids[lookahead:].tolist()
    if pack == "none" and separated and not lookahead:
        expected = expected[:-1]  # the separator at the very end is nobody's
    assert found == expected


@given(lengths=LENGTHS, context=st.integers(2, 12), epoch=st.integers(0, 5), lookahead=st.integers(0, 1))
def test_an_epoch_is_windows_of_the_stream_that_do_not_overlap(
    lengths: list[int], context: int, epoch: int, lookahead: int
) -> None:
    text = store(lengths)
    packing = windows(text, context, lookahead)
    rows = packing.take(np.arange(packing.n_rows), epoch, np.zeros(packing.n_rows, np.uint64))
    if rows.segments is None:
        first = int(rows.ids[0, 0])
        flat = rows.ids[:, :context].reshape(-1)
        begin = next(i for i in range(context) if text.ids[i] == first and (text.ids[i : i + len(flat)] == flat).all())
        assert (begin == 0) if epoch == 0 else (begin < context)
        assert begin + len(flat) + lookahead <= len(text)
        assert np.array_equal(rows.ids[:, context:].reshape(-1)[:-1], rows.ids[1:, :lookahead].reshape(-1))
    else:
        assert len(text) < context + lookahead
        assert rows.ids[0, : len(text)].tolist() == text.ids.tolist()


def test_later_epochs_begin_elsewhere_and_have_as_many_rows() -> None:
    packing = windows(store([1000]), 32, 1, seed=1)
    first = {int(packing.take(np.array([0]), epoch, np.zeros(1, np.uint64)).ids[0, 0]) for epoch in range(20)}
    assert len(first) > 8
    assert packing.n_rows == 30  # of 31 windows; the last is given up for the shift


def test_documents_are_numbered_from_their_opening_separator() -> None:
    rows = windows(store([3, 2, 6]), 5, 1, "docs").take(np.array([0, 1]), 0, np.zeros(2, np.uint64))
    assert rows.ids.tolist() == [[2, 10, 11, 12, 2, 13], [13, 14, 2, 15, 16, 17]]
    assert rows.segments is not None
    assert rows.segments.tolist() == [[1, 1, 1, 1, 2, 2], [1, 1, 2, 2, 2, 2]]


@pytest.mark.parametrize(("lengths", "separated"), [([40], True), ([40], False), ([20, 20], False)])
def test_a_single_document_or_stream_has_no_numbers(lengths: list[int], separated: bool) -> None:
    packing = windows(store(lengths, separated), 8, 1, pack="concat")
    assert packing.documents(np.arange(packing.n_rows), 0).tolist() == []


def test_one_document_a_row_is_padded_to_the_longest_and_cut_at_the_context() -> None:
    packing = windows(store([1, 6]), 4, 1, "none")
    assert packing.n_rows == 3
    rows = packing.take(np.array([0, 1, 2]), 3, np.zeros(3, np.uint64))
    assert rows.ids.tolist() == [[2, 10, 2, 0, 0], [2, 11, 12, 13, 14], [14, 15, 16, 2, 0]]
    assert rows.segments is not None
    assert rows.segments.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]


@pytest.mark.parametrize("pack", ["concat", "docs"])
def test_a_text_shorter_than_a_window_is_one_padded_row(pack: str) -> None:
    packing = windows(store([3]), 8, 1, pack)
    assert packing.n_rows == 1
    rows = packing.take(np.array([0, 0]), 7, np.zeros(2, np.uint64))
    assert rows.ids.tolist() == [[2, 10, 11, 12, 2, 0, 0, 0, 0]] * 2
    assert rows.segments is not None
    assert (rows.segments != 0).sum(1).tolist() == [5, 5]


@pytest.mark.parametrize("pack", PACKS)
def test_keys_of_evaluation_belong_to_the_row_and_not_to_the_batch(pack: str) -> None:
    packing = windows(store([9, 30, 4, 17]), 8, 0, pack)
    keys = [np.concatenate([rows.keys for rows in packing.eval_rows(size)]).tolist() for size in (1, 3, 100)]
    assert keys[0] == keys[1] == keys[2]
    assert len(set(keys[0])) == len(keys[0])


def test_a_short_evaluation_reads_rows_of_the_whole_one_spread_evenly() -> None:
    packing = windows(store([100]), 8, 1)
    rows = list(packing.eval_rows(3, tokens=30))
    whole = np.concatenate([r.ids for r in packing.eval_rows(4)])
    assert [*map(len, rows)] == [3, 1]
    assert np.array_equal(np.concatenate([r.ids for r in rows]), whole[[1, 4, 8, 11]])


@pytest.mark.parametrize("lookahead", [0, 1])
@pytest.mark.parametrize("pack", PACKS)
def test_a_short_evaluation_has_enough_targets_and_hardly_more(pack: str, lookahead: int) -> None:
    packing = windows(store([9, 7, 30, 8, 17, 1]), 8, lookahead, pack)
    whole = [rows for rows in packing.eval_rows(1)]
    real = [np.ones_like(rows.ids, bool) if rows.segments is None else rows.segments != 0 for rows in whole]
    targets = {int(rows.keys[0]): int(one[:, lookahead:].sum()) for rows, one in zip(whole, real, strict=True)}
    order, total = [*targets], sum(targets.values())
    for tokens in range(1, total + 2):
        found = [
            [key for rows in packing.eval_rows(size, tokens) for key in rows.keys.tolist()] for size in (1, 3, 100)
        ]
        assert found[0] == found[1] == found[2]
        positions = [order.index(key) for key in found[0]]
        assert positions == sorted(set(positions))
        assert sum(targets[key] for key in found[0]) >= min(tokens, total)
        assert len(positions) == len(order) or sum(sorted(targets.values())[: len(positions) - 1]) < tokens
        gaps = np.diff([-1, *positions, len(order)])
        assert gaps.max() - gaps[1:-1].min(initial=gaps.max()) <= len(order) // len(positions) + 1


def test_other_seeds_begin_elsewhere_and_eight_windows_are_enough_to_shift() -> None:
    def first(seed: int, epoch: int) -> int:
        return int(
            windows(store([1000]), 32, 1, seed=seed).take(np.array([0]), epoch, np.zeros(1, np.uint64)).ids[0, 0]
        )

    assert [first(1, epoch) for epoch in range(1, 5)] != [first(2, epoch) for epoch in range(1, 5)]
    assert [windows(store([8 * n - 2]), 8).n_rows for n in (7, 8, 9)] == [7, 7, 8]


def test_an_example_is_opened_by_the_beginning_token_and_closed_by_the_separator() -> None:
    text = store([3, 2])
    text = replace(text, vocabulary=replace(text.vocabulary, begin=5))
    first = text.starts + 1
    rows = ExampleRows(text, Shape(16, 1, "none"), Spans.of(first, first + np.array([3, 2]))).take(
        np.arange(2), 0, np.zeros(2, np.uint64)
    )
    assert rows.ids.tolist() == [[5, 10, 11, 12, SEPARATOR], [5, 13, 14, SEPARATOR, 0]]
    assert rows.segments is not None
    assert rows.segments.tolist() == [[1] * 5, [1, 1, 1, 1, 0]]


def stream_rows(n_rows: int, streams: int, tokens: int | None = None) -> list[list[int]]:
    """The rows of 8 tokens of each batch of an evaluation of streams, by their numbers."""
    packing = windows(store([8 * n_rows - 1]), 8, 1, streams=streams)
    assert packing.eval_row_tokens.tolist() == [8] * n_rows
    return [
        (np.where(batch.rows.ids[:, 0] == SEPARATOR, 0, batch.rows.ids[:, 0] - 9) // 8).tolist()
        for batch in packing.eval_batches(8, tokens)
    ]


def test_streams_of_an_evaluation_advance_together_and_have_sixteen_rows_or_more() -> None:
    assert stream_rows(40, 2) == stream_rows(40, 4) == [[row, 20 + row] for row in range(20)]
    assert stream_rows(31, 4) == [[row] for row in range(31)]
    assert sorted(stream_rows(66, 4)[0]) == [0, 16, 33, 49]


@pytest.mark.parametrize("lookahead", [0, 1])
def test_all_targets_have_all_bytes_of_the_text(lookahead: int) -> None:
    packing = windows(store([30, 12]), 8, lookahead)
    n_targets = sum(
        rows.ids[:, lookahead:].size if rows.segments is None else rows.segments[:, lookahead:].sum()
        for rows in packing.eval_rows(9)
    )
    assert packing.bytes_of(n_targets) == pytest.approx(42)
    assert packing.bytes_of(n_targets / 2) == pytest.approx(21)


def test_rows_say_where_words_begin_only_if_asked() -> None:
    asked = windows(store([50]), 8, 0, word_starts_of=lambda ids: ids % 2 == 0)
    rows = asked.take(np.array([0]), 0, np.zeros(1, np.uint64))
    assert rows.word_starts is not None
    assert rows.word_starts.tolist() == (rows.ids % 2 == 0).tolist()
    assert windows(store([50]), 8, 0).take(np.array([0]), 0, np.zeros(1, np.uint64)).word_starts is None
