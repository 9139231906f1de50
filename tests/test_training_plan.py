"""The plan: rows and seeds as pure functions of (seed, step, row)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_tf.seeds import seed_of
from mini_tf.training.plan import RowPlan, permute, scatter


def test_the_numbers_are_those_of_splitmix64() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert scatter(1234567, np.arange(5)).tolist() == published


def test_golden_vectors_hold_on_every_machine_and_release() -> None:
    assert seed_of(0) == 11243728523470438572
    assert seed_of(0, "rows", 3) == 11667410099765463953
    assert permute(np.arange(10), 10, 0).tolist() == [7, 4, 8, 2, 0, 1, 6, 5, 3, 9]
    assert permute(np.array([0, 1, 10**12 - 1]), 10**12, 1).tolist() == [903134816694, 820995277382, 143222518095]
    assert [RowPlan(10, 4, 0).rows(step).rows.tolist() for step in range(3)] == [[4, 2, 5, 1], [7, 6, 9, 0], [8, 3, 5, 7]]
    assert int(RowPlan(10, 4, 0).rows(0).keys[0]) == 15760363063747127913


def test_seeds_tell_numbers_from_text_and_take_numpy_integers() -> None:
    assert seed_of(1) != seed_of("1")
    assert seed_of(1, 2) != seed_of(12)
    assert seed_of(np.int64(5), "a") == seed_of(5, "a")


@given(n=st.integers(1, 3000), seed=st.integers(0, 2**64 - 1))
def test_a_permutation_meets_every_place_once(n: int, seed: int) -> None:
    assert sorted(permute(np.arange(n), n, seed)) == list(range(n))


def test_every_place_is_equally_likely() -> None:
    seen = np.zeros((7, 7))
    for seed in range(2000):
        seen[np.arange(7), permute(np.arange(7), 7, seed_of(seed))] += 1
    expected = 2000 / 7
    chi_squared = ((seen - expected) ** 2 / expected).sum()
    assert chi_squared < 36 + 4 * np.sqrt(2 * 36)  # 36 degrees of freedom, four sigma


@given(n_rows=st.integers(1, 60), batch_size=st.integers(1, 40), n_epochs=st.integers(1, 3))
def test_steps_cut_the_epochs_without_a_gap(n_rows: int, batch_size: int, n_epochs: int) -> None:
    plan = RowPlan(n_rows, batch_size, seed=3)
    steps = [plan.rows(step) for step in range(-(-n_rows * n_epochs // batch_size))]
    rows, epochs = np.concatenate([s.rows for s in steps]), np.concatenate([s.epochs for s in steps])
    for epoch in range(n_epochs):
        assert sorted(rows[epochs == epoch]) == list(range(n_rows))


def test_a_step_can_be_asked_for_alone_and_its_keys_are_its_own() -> None:
    plan = RowPlan(100, 8, seed=1)
    in_order = [plan.rows(step) for step in range(6)]
    assert np.array_equal(plan.rows(5).rows, in_order[5].rows)
    assert len(np.unique(np.concatenate([s.keys for s in in_order]))) == 48
    assert not np.array_equal(RowPlan(100, 8, seed=2).rows(0).rows, in_order[0].rows)


def test_another_epoch_is_another_order() -> None:
    plan = RowPlan(50, 50, seed=1)
    assert plan.rows(0).rows.tolist() != plan.rows(1).rows.tolist()


@pytest.mark.parametrize(("n_rows", "batch_size"), [(12, 3), (13, 4), (2, 5)])
def test_a_row_of_a_stream_continues_the_row_of_the_step_before(n_rows: int, batch_size: int) -> None:
    plan = RowPlan(n_rows, batch_size, seed=0, stream=True)
    seen = set()
    for step in range(2 * n_rows):
        assert np.array_equal(plan.rows(step + 1).rows, (plan.rows(step).rows + 1) % n_rows)
        assert not plan.rows(step).epochs.any()
        seen |= set(plan.rows(step).rows.tolist()) if step < -(-n_rows // batch_size) else set()
    assert seen == set(range(n_rows))


def test_an_epoch_of_rows_takes_the_steps_in_which_each_is_seen_once() -> None:
    assert RowPlan(10, 4, 0).epoch_steps == 2.5
