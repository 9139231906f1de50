"""From the plan to micro-batches."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_of import dataset_of
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.packing import Packing, Shape
from mini_tf.data.store import Store
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.data.windows import Windows
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.sections import Train
from mini_tf.training.feed import Feed, prefetch
from mini_tf.training.machine import memory
from mini_tf.training.machine.compiled import flatten
from mini_tf.training.machine.device import Setup
from mini_tf.training.plan import RowPlan, TokenPlan, make_plan


class Numbered:
    """Rows that hold their own number; rows of odd epochs are one token longer and have two documents."""

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        ids = np.repeat(rows[:, None], 3 + epoch % 2, axis=1)
        segments = np.ones_like(ids) if epoch % 2 else None
        return Rows(ids, keys, segments, ids > 0)


def plain(rows: Rows) -> Batch:
    return Batch(
        Tokens(torch.from_numpy(rows.ids)),
        torch.from_numpy(rows.keys.astype(np.int64)),
        counts={"tokens": rows.ids.size},
    )


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


class Labelled:
    """As `Numbered`, with labels, sentence starts and a source."""

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        ids = np.repeat(rows[:, None], 3 + epoch % 2, axis=1) + 1
        labels = ids.astype(np.float32)
        source = Rows(ids + 100, keys)
        return Rows(ids, keys, None, None, source, labels, labels[:, :1], examples=rows, sentence_starts=ids > 0)


def test_labels_and_sources_of_two_epochs_are_joined_too() -> None:
    """What pads a shorter row has no label and begins no sentence; the rows of a later epoch are those of its own."""
    caught: list[Rows] = []
    feed = Feed(RowPlan(10, 4, seed=1), Labelled(), lambda rows: (caught.append(rows), plain(rows))[1], 4)  # type: ignore[arg-type]
    feed.micro_batches(2)
    [rows] = caught
    numbers = (feed.plan.rows(2).rows + 1).tolist()
    expected = [[n] * 3 + [0] * (row < 2) + [n] * (row >= 2) for row, n in enumerate(numbers)]
    assert rows.ids.tolist() == expected
    assert rows.labels is not None
    assert np.isnan(rows.labels).tolist() == [[id == 0 for id in row] for row in expected]
    assert np.nan_to_num(rows.labels).tolist() == expected
    assert rows.row_labels is not None
    assert rows.row_labels.tolist() == [[n] for n in numbers]
    assert rows.sentence_starts is not None
    assert rows.sentence_starts.tolist() == [[id > 0 for id in row] for row in expected]
    assert rows.source is not None
    assert rows.source.ids.tolist() == [[100 + id if id else 0 for id in row] for row in expected]
    assert rows.source.segments is not None
    assert (rows.source.segments != 0).tolist() == [[id > 0 for id in row] for row in expected]


@pytest.mark.parametrize("in_background", [True, False])
def test_batches_come_in_the_order_of_steps_from_any_step_on(in_background: bool) -> None:
    feed = feed_of()
    with prefetch(feed, 3, in_background) as upcoming:
        for step in range(3, 9):
            got = [batch.inputs.ids.tolist() for batch in next(upcoming)]
            assert got == [batch.inputs.ids.tolist() for batch in feed.micro_batches(step)]


def test_every_tensor_of_a_batch_is_pinned_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinning, which needs a GPU, adds 1 here."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 1)

    def prepare(rows: Rows) -> Batch:
        segments = torch.ones(2, 3).long()
        tokens = Tokens(torch.zeros(2, 3), TokenPositions(3, 0, segments, segments, segments), segments)
        return Batch(tokens, segments, segments, tokens, {"draws": segments}, {"tokens": 6})

    with prefetch(Feed(RowPlan(10, 4, seed=1), Numbered(), prepare, 2), 0, in_background=True, pinned=True) as upcoming:
        [pinned, _] = next(upcoming)
    (before, structure), (after, same_structure) = (
        flatten(batch) for batch in (prepare(feed_of().packing.take(np.arange(2), 0, np.arange(2))), pinned)
    )
    assert structure == same_structure
    assert len(after) == 18
    for one, other in zip(before, after, strict=True):
        assert torch.equal(other, one + 1) if isinstance(other, torch.Tensor) else other == one


def test_a_fault_in_the_background_reaches_the_reader_and_the_thread_ends() -> None:
    def refuse(rows: Rows) -> Batch:
        raise ZeroDivisionError("in prepare")

    feed = Feed(RowPlan(10, 4, seed=1), Numbered(), refuse, 2)
    with prefetch(feed, 0, in_background=True) as upcoming, pytest.raises(ZeroDivisionError, match="in prepare"):
        next(upcoming)
    assert not any(thread.name.startswith("feed") for thread in threading.enumerate())


@pytest.mark.parametrize("batch_size", [1, 4, 6, 12])
def test_equal_steps_are_cut_into_equal_micro_batches(batch_size: int) -> None:
    for micro in (m for m in range(1, batch_size + 1) if batch_size % m == 0):
        feed = feed_of(batch_size, micro, n_rows=50)
        assert feed.n_micro == batch_size // micro
        assert feed.bounds(batch_size) == [(first, first + micro) for first in range(0, batch_size, micro)]


@settings(deadline=None)
@given(largest=st.integers(1, 60), micro=st.integers(1, 70), data=st.data())
def test_cuts_cover_every_row_once_in_parts_that_are_nearly_equal(
    largest: int, micro: int, data: st.DataObject
) -> None:
    feed, n_rows = feed_of(largest, micro), data.draw(st.integers(1, largest))
    cuts = feed.bounds(n_rows)
    assert [row for first, last in cuts for row in range(first, last)] == list(range(n_rows))
    sizes = [last - first for first, last in cuts]
    assert max(sizes) - min(sizes) <= 1
    assert 1 <= min(sizes) <= max(sizes) <= micro
    assert len(cuts) == min(n_rows, feed.n_micro)


def toy_pairs(n: int = 24) -> tuple[list[list[int]], list[list[int]]]:
    """Sources and targets of ids from 4 on, of many lengths."""
    random = np.random.default_rng(0)
    return tuple([random.integers(4, 30, random.integers(1, 9)).tolist() for _ in range(n)] for _ in range(2))  # type: ignore[return-value]


def stored(documents: list[list[int]], folder: Path, source: Store | None = None) -> Store:
    """Documents as they lie on disk, with the separator 2."""
    folder.mkdir()
    ids = np.array([2, *(id for document in documents for id in [*document, 2])], np.uint16)
    starts = np.cumsum([0, *(len(document) + 1 for document in documents[:-1])])
    ids.tofile(folder / "a.ids")
    starts.astype(np.int64).tofile(folder / "a.starts")
    return Store(folder / "a.ids", ids, starts, len(ids), True, Vocabulary(30, 0, 1, 2, None), source=source)


@pytest.fixture
def pairing(tmp_path: Path) -> Packing:
    sources, targets = toy_pairs()
    return dataset_of("pairs").packing(stored(targets, tmp_path / "t", stored(sources, tmp_path / "s")), Shape(8, 1))


@pytest.mark.parametrize("batch_tokens", [8, 40, 64])
def test_a_step_of_tokens_gives_every_pair_once_an_epoch_in_micro_batches_that_fit(
    pairing: Packing, batch_tokens: int
) -> None:
    plan = make_plan(Train(steps=1, batch_tokens=batch_tokens, context=8), pairing)
    feed = Feed(plan, pairing, lambda rows: rows, 2)  # type: ignore[arg-type, return-value]
    seen = []
    for step in range(round(plan.epoch_steps)):
        parts = feed.micro_batches(step)
        assert max(map(len, parts)) <= 2
        assert [len(part) for part in parts] == [last - first for first, last in feed.bounds(len(plan.rows(step).rows))]
        for part in parts:
            assert isinstance(part, Rows)
            assert part.source is not None
            widest = max(part.ids.shape[1] - 1, part.source.ids.shape[1])
            assert sum(map(len, parts)) * widest <= batch_tokens
            real = np.ones_like(part.ids) if part.segments is None else part.segments
            seen += [tuple(ids[kept != 0].tolist()) for ids, kept in zip(part.ids, real, strict=True)]
    assert sorted(seen) == sorted(tuple([2, *target, 2][:9]) for target in toy_pairs()[1])


def test_processes_divide_the_micro_batches_of_every_step_however_small(pairing: Packing) -> None:
    plan = make_plan(Train(steps=1, batch_tokens=40, context=8), pairing)

    def parts(step: int, own: Any = range) -> list[Rows]:
        return Feed(plan, pairing, lambda rows: rows, 1, own).micro_batches(step)  # type: ignore[arg-type, return-value]

    sizes = set()
    for step in range(round(plan.epoch_steps)):
        together = [rows.ids.tolist() for rows in parts(step)]
        divided = [
            [rows.ids.tolist() for rows in parts(step, lambda n, rank=rank: range(n)[rank::3])] for rank in range(3)
        ]
        assert [divided[n % 3][n // 3] for n in range(len(together))] == together
        assert sum(map(len, divided)) == len(together)
        sizes.add(len(together))
    assert len(sizes) > 1


@pytest.mark.parametrize("plan", [{"batch_size": 8}, {"batch_tokens": 64}], ids=["rows", "tokens"])
def test_how_a_step_of_pairs_is_cut_changes_neither_loss_nor_gradient(pairing: Packing, plan: dict[str, int]) -> None:
    objective = settings_of("objectives", "seq2seq")(label_smoothing=0.1).build(Vocabulary(30, 0, 1, 2, None))  # type: ignore[attr-defined]
    torch.manual_seed(0)
    model = settings_of("models", "encoder_decoder")(d_model=16, n_layers=1, n_heads=2).build(30, 8)  # type: ignore[attr-defined]
    task = objective.task(model)
    planned = make_plan(Train(steps=1, context=8, **plan), pairing)  # type: ignore[arg-type]

    def learnt(micro: int, step: int) -> tuple[float, list[torch.Tensor]]:
        task.zero_grad()
        total = 0.0
        for batch in Feed(planned, pairing, objective.prepare, micro).micro_batches(step):
            loss = torch.stack(list(task(batch, None).parts.values())).sum()
            loss.backward()
            total += loss.item()
        return total, [p.grad.clone() for p in task.parameters()]

    for step in range(3):
        whole, gradients = learnt(planned.batch_size, step)
        for micro in (4, 1):
            loss, cut = learnt(micro, step)
            assert loss == pytest.approx(whole, rel=1e-6)
            for one, other in zip(gradients, cut, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pack", ["none", "concat"])
def test_texts_may_be_planned_by_tokens_too(pack: str, tmp_path: Path) -> None:
    documents = toy_pairs()[1]
    packing = Windows(stored(documents, tmp_path / "t"), Shape(8, 1, pack))  # type: ignore[arg-type]
    plan = make_plan(Train(steps=1, batch_tokens=32, context=8), packing)
    feed = Feed(plan, packing, lambda rows: rows, 100)  # type: ignore[arg-type, return-value]
    batches: list[Any] = [feed.micro_batches(step)[0] for step in range(round(plan.epoch_steps))]
    assert max(rows.ids.shape[0] * (rows.ids.shape[1] - 1) for rows in batches) <= 32
    assert sum(map(len, batches)) == packing.n_rows
    if pack == "none":
        read = [ids[kept != 0].tolist() for rows in batches for ids, kept in zip(rows.ids, _real(rows), strict=True)]
        cut = [
            [2, *document, 2][first : first + 9] for document in documents for first in range(0, len(document) + 1, 8)
        ]
        assert sorted(read) == sorted(cut)


def _real(rows: Rows) -> np.ndarray:
    return np.ones_like(rows.ids) if rows.segments is None else rows.segments


def test_auto_micro_batches_are_judged_by_a_full_step(pairing: Packing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever step comes first: by one of few short rows all rows of the others would seem to fit."""
    objective = settings_of("objectives", "seq2seq")().build(Vocabulary(30, 0, 1, 2, None))  # type: ignore[attr-defined]
    model = settings_of("models", "encoder_decoder")(d_model=16, n_layers=1, n_heads=2).build(30, 8)  # type: ignore[attr-defined]
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2 << 20)
    kept = set()
    for seed in range(6):
        plan = TokenPlan(pairing.lengths, 64, seed)
        _, reason = memory.fitting_micro_batch(
            objective.task(model), Feed(plan, pairing, objective.prepare, 1), Setup()
        )
        kept.add(reason)
    assert len(kept) == 1
