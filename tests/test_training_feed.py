"""From the plan to micro-batches."""

import threading

import numpy as np
import pytest
import torch

from mini_tf.nn.tokens import Tokens
from mini_tf.text.batch import Batch, Rows
from mini_tf.training.feed import Feed, ahead
from mini_tf.training.plan import RowPlan


class Numbered:
    """Rows that hold their own number; rows of odd epochs are one token longer and have two documents."""

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        ids = np.repeat(rows[:, None], 3 + epoch % 2, axis=1)
        segments = np.ones_like(ids) if epoch % 2 else None
        return Rows(ids, keys, segments, ids > 0)


def plain(rows: Rows) -> Batch:
    return Batch(Tokens(torch.from_numpy(rows.ids)), torch.from_numpy(rows.keys.astype(np.int64)), counts={"tokens": rows.ids.size})


def feed_of(batch_size: int = 4, micro: int = 2, n_rows: int = 10) -> Feed:
    return Feed(RowPlan(n_rows, batch_size, seed=1), Numbered(), plain, micro)


def test_micro_batches_are_the_planned_rows_in_order_with_their_keys() -> None:
    feed = feed_of()
    batches = feed.micro_batches(1)
    chosen = feed.plan.rows(1)
    assert torch.cat([batch.inputs.ids[:, 0] for batch in batches]).tolist() == chosen.rows.tolist()
    assert torch.cat([batch.labels for batch in batches]).tolist() == chosen.keys.astype(np.int64).tolist()


def test_a_step_across_two_epochs_joins_rows_of_both_and_pads_the_narrower() -> None:
    caught: list[Rows] = []
    feed = Feed(RowPlan(10, 4, seed=1), Numbered(), lambda rows: (caught.append(rows), plain(rows))[1], 4)
    feed.micro_batches(2)
    (rows,) = caught
    assert rows.ids[:, 0].tolist() == feed.plan.rows(2).rows.tolist()
    assert rows.segments is not None
    assert rows.segments.tolist() == [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    assert rows.word_starts is not None
    assert rows.word_starts.shape == rows.ids.shape == (4, 4)


@pytest.mark.parametrize("in_background", [True, False])
def test_batches_come_in_the_order_of_steps_from_any_step_on(in_background: bool) -> None:
    feed = feed_of()
    with ahead(feed, 3, in_background) as upcoming:
        for step in range(3, 9):
            got = [batch.inputs.ids.tolist() for batch in next(upcoming)]
            assert got == [batch.inputs.ids.tolist() for batch in feed.micro_batches(step)]


def test_a_fault_in_the_background_reaches_the_reader_and_the_thread_ends() -> None:
    def refuse(rows: Rows) -> Batch:
        raise ZeroDivisionError("in prepare")

    feed = Feed(RowPlan(10, 4, seed=1), Numbered(), refuse, 2)
    with ahead(feed, 0, in_background=True) as upcoming, pytest.raises(ZeroDivisionError, match="in prepare"):
        next(upcoming)
    assert not any(thread.name.startswith("feed") for thread in threading.enumerate())


def test_a_micro_batch_must_divide_the_batch() -> None:
    with pytest.raises(ValueError, match=r"`micro_batch_size` must divide the batch: 4 % 3 != 0"):
        feed_of(micro=3)
