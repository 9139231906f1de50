"""The plan: rows and seeds as pure functions of (seed, step, row), in steps of so many rows or of so many tokens."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_tf.recipe.sections import Train
from mini_tf.system.seeds import seed_of
from mini_tf.training.plan import RowPlan, TokenPlan, make_plan, permute, splitmix64


def test_the_numbers_are_those_of_splitmix64() -> None:
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert splitmix64(1234567, np.arange(5)).tolist() == published


def test_golden_vectors_hold_on_every_machine_and_release() -> None:
    assert seed_of(0) == 11243728523470438572
    assert seed_of(0, "rows", 3) == 11667410099765463953
    assert permute(np.arange(10), 10, 0).tolist() == [7, 4, 8, 2, 0, 1, 6, 5, 3, 9]
    assert permute(np.array([0, 1, 10**12 - 1]), 10**12, 1).tolist() == [903134816694, 820995277382, 143222518095]
    assert [RowPlan(10, 4, 0).rows(step).rows.tolist() for step in range(3)] == [
        [4, 2, 5, 1],
        [7, 6, 9, 0],
        [8, 3, 5, 7],
    ]
    assert int(RowPlan(10, 4, 0).rows(0).keys[0]) == 15760363063747127913


def test_seeds_tell_numbers_from_text_and_take_numpy_integers() -> None:
    assert seed_of(1) != seed_of("1")
    assert seed_of(1, 2) != seed_of(12)
    assert seed_of(np.int64(5), "a") == seed_of(5, "a")


@settings(deadline=None)
@given(n=st.integers(1, 3000), seed=st.integers(0, 2**64 - 1))
def test_a_permutation_meets_every_place_once(n: int, seed: int) -> None:
    assert sorted(permute(np.arange(n), n, seed)) == list(range(n))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 256])
def test_a_permutation_is_a_feistel_network_over_the_least_even_number_of_bits(n: int) -> None:
    """Six rounds in whole numbers of Python; an output that is no place goes through them again, until it is one."""
    half = next(half for half in itertools.count(1) if 4**half >= n)
    round_seeds = [int(one) for one in splitmix64(9, np.arange(6))]

    def sent(x: int) -> int:
        left, right = divmod(x, 1 << half)
        for seed in round_seeds:
            left, right = right, left ^ int(splitmix64(seed, np.array([right]))[0]) % (1 << half)
        place = (left << half) + right
        return place if place < n else sent(place)

    assert permute(np.arange(n), n, 9).tolist() == [sent(x) for x in range(n)]


def test_every_place_is_equally_likely() -> None:
    seen, n = np.zeros((7, 7)), 500
    for seed in range(n):
        seen[np.arange(7), permute(np.arange(7), 7, seed_of(seed))] += 1
    expected = n / 7
    chi_squared = ((seen - expected) ** 2 / expected).sum()
    assert chi_squared < 36 + 4 * np.sqrt(2 * 36)  # 36 degrees of freedom, four sigma


@settings(deadline=None)
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


def lengths_like_sentences(n: int = 6000, seed: int = 0) -> np.ndarray:
    """Lengths with the mean of 15 tokens and the long tail that captions have."""
    return np.clip(np.random.default_rng(seed).lognormal(2.65, 0.35, n).astype(np.int64), 3, 64)


def an_epoch(plan: TokenPlan, epoch: int = 0) -> list[np.ndarray]:
    first = epoch * round(plan.epoch_steps)
    return [plan.rows(step).rows for step in range(first, first + round(plan.epoch_steps))]


ODD_LENGTHS = {
    "sentences": lengths_like_sentences(700),
    "one row": np.array([7]),
    "fewer rows than a batch": np.array([3, 9, 4]),
    "all alike": np.full(100, 12),
    "one much longer": np.array([5] * 99 + [64]),
    "one much shorter": np.array([1] + [64] * 99),
    "every length": np.arange(1, 65),
}


@pytest.mark.parametrize("name", ODD_LENGTHS)
@pytest.mark.parametrize("batch_tokens", [64, 100, 1000, 4096])
def test_an_epoch_of_tokens_has_every_row_once_and_no_batch_too_large(name: str, batch_tokens: int) -> None:
    lengths = ODD_LENGTHS[name]
    plan = TokenPlan(lengths, batch_tokens, seed=3)
    for epoch in (0, 5):
        batches = an_epoch(plan, epoch)
        assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
        assert all(len(batch) >= 1 and len(batch) * lengths[batch].max() <= batch_tokens for batch in batches)
    assert max(map(len, batches)) == plan.batch_size


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=80),
    batch_tokens=st.integers(40, 300),
    seed=st.integers(0, 2**63 - 1),
)
def test_whatever_the_lengths_every_row_is_planned_once(lengths: list[int], batch_tokens: int, seed: int) -> None:
    plan = TokenPlan(np.array(lengths), batch_tokens, seed)
    for epoch in (0, 2):
        batches = an_epoch(plan, epoch)
        assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
        assert max(len(batch) * max(lengths[row] for row in batch) for batch in batches) <= batch_tokens


@pytest.mark.parametrize("batch_tokens", [1024, 4096])
def test_little_is_padding_and_batches_are_nearly_full(batch_tokens: int) -> None:
    lengths = lengths_like_sentences(10_000)
    padded = [len(batch) * int(lengths[batch].max()) for batch in an_epoch(TokenPlan(lengths, batch_tokens, seed=0))]
    assert 1 - lengths.sum() / sum(padded) < 0.1
    assert np.mean(padded) > 0.7 * batch_tokens
    shuffled = [
        np.random.default_rng(0).permutation(lengths)[n : n + 64].max() * 64 for n in range(0, len(lengths), 64)
    ]
    assert 1 - lengths.sum() / sum(shuffled) > 0.4  # what rows that are not sorted would waste


def test_a_step_of_tokens_is_a_function_of_its_number_alone() -> None:
    lengths = lengths_like_sentences(500)
    plan = TokenPlan(lengths, 512, seed=1)
    steps = list(range(3 * round(plan.epoch_steps)))
    in_order = [plan.rows(step) for step in steps]
    for step in np.random.default_rng(0).permutation(steps).tolist():
        for asked in (
            plan.rows(step),
            TokenPlan(lengths, 512, seed=1).rows(step) if step % 10 == 0 else plan.rows(step),
        ):
            assert all(np.array_equal(one, other) for one, other in zip(asked, in_order[step], strict=True))
        assert set(in_order[step].epochs.tolist()) == {step // round(plan.epoch_steps)}
    assert len(np.unique(np.concatenate([step.keys for step in in_order]))) == 1500


def test_the_key_of_a_row_is_that_of_its_place_in_the_step() -> None:
    """So that a row of another batch size or length has the same random choices."""
    for plan in (
        TokenPlan(lengths_like_sentences(300), 256, seed=7),
        RowPlan(40, 6, seed=7),
        RowPlan(40, 6, seed=7, stream=True),
    ):
        for step in (0, 5, 40):
            keys = plan.rows(step).keys
            assert keys.tolist() == splitmix64(seed_of(7, "rows", step), np.arange(len(keys))).tolist()


def test_epochs_and_seeds_make_other_batches_in_another_order() -> None:
    lengths = lengths_like_sentences()
    plan = TokenPlan(lengths, 512, seed=1)
    one, two, other = an_epoch(plan), an_epoch(plan, 1), an_epoch(TokenPlan(lengths, 512, seed=2))
    sets = [{frozenset(batch.tolist()) for batch in epoch} for epoch in (one, two, other)]
    for before, after in itertools.combinations(sets, 2):  # the few longest rows are always a batch of their own
        assert len(before & after) < 0.05 * len(before)
    longest = [[int(lengths[batch].max()) for batch in epoch] for epoch in (one, two, other)]
    assert longest[0] != longest[1] != longest[2] != longest[0]


def test_batches_of_all_lengths_are_mixed() -> None:
    lengths = lengths_like_sentences()
    longest = np.array([lengths[batch].max() for batch in an_epoch(TokenPlan(lengths, 1024, seed=0))], float)
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3
    assert abs(np.corrcoef(longest[1:], longest[:-1])[0, 1]) < 0.3


def test_golden_batches_hold_on_every_machine_and_release() -> None:
    plan = TokenPlan(np.array([3, 9, 4, 9, 12, 2, 10, 9]), 20, seed=0)
    assert plan.epoch_steps == 5
    assert [plan.rows(step).rows.tolist() for step in range(7)] == [[0, 5, 2], [1, 7], [6], [4], [3], [6], [4]]


def test_rows_of_rare_lengths_go_with_the_next_shorter_ones() -> None:
    """Three rows alone would make a step that counts as much as a full one; much shorter rows would be all padding
    beside them.
    """
    lengths = np.array([50] * 97 + [62, 62, 63])
    full = [len(batch) * lengths[batch].max() for batch in an_epoch(TokenPlan(lengths, 640, seed=0))]
    assert min(full) > 0.7 * 640
    much_shorter = np.array([10] * 97 + [62, 62, 63])
    batches = an_epoch(TokenPlan(much_shorter, 640, seed=0))
    assert sorted(len(batch) for batch in batches) == [3, 48, 49]
    for length, alone in ((41, True), (42, False)):  # much shorter: below two thirds of the longest
        batches = an_epoch(TokenPlan(np.array([length] * 97 + [62, 62, 63]), 640, seed=0))
        assert (3 in [len(batch) for batch in batches]) == alone


def test_the_recipe_says_whether_rows_or_tokens_are_counted() -> None:
    rows = SimpleNamespace(n_rows=20, lengths=np.full(20, 8), layout=None)
    assert make_plan(Train(steps=1, batch_size=5, seed=4), rows) == RowPlan(20, 5, 4)
    assert make_plan(Train(steps=1, batch_size=5, stream=True), rows) == RowPlan(20, 5, 0, stream=True)
    plan = make_plan(Train(steps=1, batch_tokens=32, context=8, seed=4), rows)
    assert isinstance(plan, TokenPlan)
    assert (plan.seed, plan.stream, plan.batch_size, plan.epoch_steps) == (4, False, 4, 5)
