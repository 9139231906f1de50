"""Objectives: which tokens are hidden, what is asked, and that neither cutting the batch nor padding changes the
answer.
"""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from data_of import both, encoded
from test_models import Largest
from torch import Tensor

from mini_tf.data.batch import Batch, Rows
from mini_tf.data.packing import Shape
from mini_tf.data.store import Store
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.data.windows import Windows
from mini_tf.nn.layers.cross_entropy import CHUNK
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import Objective
from mini_tf.objectives._masking import _borders, _fill
from mini_tf.objectives.masked import Masked
from mini_tf.optimizers import Parameter, adamw
from mini_tf.recipe import sections
from mini_tf.recipe.kinds import settings_of
from mini_tf.schedules import cosine
from mini_tf.system.errors import DataFault
from mini_tf.training.evaluation import evaluate
from mini_tf.training.feed import Feed
from mini_tf.training.loop import train
from mini_tf.training.machine.device import Setup
from mini_tf.training.optimizer import build
from mini_tf.training.plan import RowPlan
from mini_tf.training.schedule import Horizon, TrainingSchedule
from mini_tf.training.training import Training

Pack = Literal["concat", "docs", "none"]
SEPARATOR = 2
VOCABULARY = Vocabulary(60, pad=0, unk=1, separator=SEPARATOR, mask=3)
PLAIN = np.arange(4, 60)


def objective_of(kind: str, vocabulary: Vocabulary = VOCABULARY, **settings: Any) -> Objective:
    objective = settings_of("objectives", kind)(**settings).build(vocabulary)  # type: ignore[attr-defined]
    assert isinstance(objective, Objective)
    return objective


def model_of(kind: str, vocabulary_size: int = 60, context: int = 16, **settings: Any) -> Model:
    torch.manual_seed(0)
    small = {"d_model": 16, "n_layers": 2, "n_heads": 2, "init_std": 0.3}
    model = settings_of("models", kind)(**{**small, **settings}).build(vocabulary_size, context)  # type: ignore[attr-defined]
    assert isinstance(model, Model)
    return model


def rows_of(n: int, length: int, words: bool = False, seed: int = 0) -> Rows:
    """Random text with separators in it, whose second half of rows is padded behind, by a token that is otherwise
    plain.
    """
    draw = np.random.default_rng(seed)
    ids = np.where(draw.random((n, length)) < 0.05, SEPARATOR, draw.choice(PLAIN, (n, length)))
    segments = np.ones_like(ids)
    segments[n // 2 :, 3 * length // 4 :] = 0
    ids[segments == 0] = PLAIN[0]
    starts = draw.random((n, length)) < 0.4
    return Rows(ids, draw.integers(0, 2**63, n).astype(np.uint64), segments, starts if words else None)


def free(rows: Rows) -> np.ndarray:
    """True at the positions (B, L) that may be judged: neither special nor padding."""
    positions: np.ndarray = np.isin(rows.ids, PLAIN) & (np.asarray(rows.segments) != 0)
    return positions


def judged(batch: Batch) -> np.ndarray:
    """True at the positions (B, L) that are judged."""
    asked = torch.ones(batch.inputs.ids.shape, dtype=torch.bool)
    if batch.target_positions is not None:
        asked = torch.zeros_like(asked).flatten().index_fill(0, batch.target_positions, True).view_as(asked)
    return asked.numpy()


def within(count: int, n: int, share: float) -> bool:
    """Whether `count` of `n` lies within five standard deviations of what a coin of that share gives."""
    return bool(abs(count - n * share) <= 5 * np.sqrt(n * share * (1 - share)))


def evenly_spread(counts: np.ndarray) -> bool:
    """Whether Pearson's chi-square of `counts` against equal chances lies within five of its standard deviations."""
    expected, freedom = counts.mean(), len(counts) - 1
    return bool(((counts - expected) ** 2).sum() / expected <= freedom + 5 * np.sqrt(2 * freedom))


@pytest.mark.parametrize("replace", [(0.5, 0.3, 0.2), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)])
@pytest.mark.parametrize("scheme", ["token", "whole_word", "span"])
def test_judged_tokens_are_masked_replaced_and_kept_in_their_shares(
    scheme: str, replace: tuple[float, float, float]
) -> None:
    rows = rows_of(300, 64, words=scheme == "whole_word")
    batch = objective_of("masked", scheme=scheme, replace=replace).prepare(rows)
    where, ids = judged(batch), batch.inputs.ids.numpy()
    now, before = ids[where], rows.ids[where]
    assert np.array_equal(batch.labels.numpy(), before)
    assert np.array_equal(ids[~where], rows.ids[~where])
    assert free(rows)[where].all()
    masked, changed = now == VOCABULARY.mask, (now != VOCABULARY.mask) & (now != before)
    # A random token is the old one by chance, one time in as many as there are plain tokens.
    assert within(masked.sum(), len(now), replace[0])
    assert within(changed.sum(), len(now), replace[1] * (1 - 1 / len(PLAIN)))
    assert np.isin(now[changed], PLAIN).all()
    if replace[1]:
        assert evenly_spread(np.bincount(now[changed], minlength=60)[PLAIN])


@pytest.mark.parametrize("mask_rate", [0.15, 0.4])
def test_a_row_has_the_share_of_its_tokens_judged_and_at_least_one(mask_rate: float) -> None:
    rows = rows_of(40, 50)
    rows.ids[0, 1:], rows.ids[1] = VOCABULARY.separator, VOCABULARY.separator
    counts = judged(objective_of("masked", mask_rate=mask_rate).prepare(rows)).sum(axis=1)
    assert counts.tolist() == [max(1, round(mask_rate * n)) if n else 0 for n in free(rows).sum(axis=1)]
    assert counts[0] == 1


def test_whole_words_are_hidden_or_not() -> None:
    rows = rows_of(200, 40, words=True)
    assert rows.word_starts is not None
    where = judged(objective_of("masked", scheme="whole_word").prepare(rows))
    for i, ids in enumerate(rows.ids):
        # A word: from a place where one begins up to the next such place, special token or end.
        words: list[list[int]] = []
        for place in range(len(ids)):
            if not free(rows)[i, place]:
                words.append([])
            elif rows.word_starts[i, place] or place == 0 or not words:
                words.append([place])
            else:
                words[-1].append(place)
        words = [word for word in words if word]
        hidden = [word for word in words if where[i, word].any()]
        assert all(where[i, word].all() for word in hidden)
        assert hidden
        wanted = max(1, round(0.15 * sum(map(len, words))))
        assert len(hidden) == 1 or sum(map(len, hidden)) <= wanted


def test_spans_are_runs() -> None:
    """The share of judged positions whose neighbour is judged too: 0.15 by chance, above a half for spans."""
    rows = rows_of(200, 128)
    shares = {}
    for scheme in ("token", "span"):
        where = judged(objective_of("masked", scheme=scheme).prepare(rows))
        shares[scheme] = (where[:, 1:] & where[:, :-1]).sum() / where.sum()
        assert (where.sum(axis=1) <= np.maximum(1, np.round(0.15 * free(rows).sum(axis=1)))).all()
    assert shares["token"] < 0.2
    assert shares["span"] > 0.5


def spans_of(objective: Objective, positions: np.ndarray, wanted: int, seed: int) -> np.ndarray:
    assert isinstance(objective, Masked)
    return objective.masking._spans(positions, wanted, np.random.default_rng(seed))


def test_lengths_of_spans_are_geometric_among_those_up_to_10() -> None:
    """Of positions so many that spans hardly ever meet, by chi-square; 3.8 on average, as in the paper."""
    chosen = spans_of(objective_of("masked", scheme="span"), np.arange(1_000_000), 4000, 0)
    lengths = np.array([len(run) for run in np.split(chosen, np.flatnonzero(np.diff(chosen) > 1) + 1)])
    assert (lengths > 10).mean() < 0.02
    lengths = lengths[lengths <= 10]
    share = 0.2 * 0.8 ** np.arange(10)
    expected = share / share.sum() * len(lengths)
    assert ((np.bincount(lengths, minlength=11)[1:] - expected) ** 2 / expected).sum() <= 9 + 5 * np.sqrt(2 * 9)
    assert lengths.mean() == pytest.approx(3.8, abs=5 * 2.6 / len(lengths) ** 0.5)


def test_a_span_does_not_reach_over_a_separator() -> None:
    """Two positions are wanted; 4 and the first behind the separator are chosen together only where two spans of one
    place each come to stand there.
    """
    for behind in (6, 100):
        objective, positions = objective_of("masked", scheme="span"), np.array([*range(5), *range(behind, behind + 5)])
        found = [spans_of(objective, positions, 2, seed).tolist() for seed in range(2000)]
        one = 0.2 / (1 - 0.8**10)  # of one place
        assert within(found.count([4, behind]), 2000, (1 + one) / 90)


def test_words_end_at_gaps_and_the_shortest_is_taken_where_none_fits() -> None:
    starts = np.array([True, False, False, True, False, False, False, False])
    assert _borders(np.array([0, 1, 2, 3, 6, 7]), starts).tolist() == [False, False, False, True, True, False]
    one_separator_between = np.array([0, 1, 2, 4, 5])
    assert _borders(one_separator_between, starts).tolist() == [False, False, False, True, False]
    words = [np.array([1, 2, 3]), np.array([7, 8]), np.array([4, 5, 6])]
    assert _fill(1, words).tolist() == [7, 8]
    assert _fill(5, words).tolist() == [1, 2, 3, 7, 8]


@pytest.mark.parametrize("scheme", ["token", "whole_word", "span"])
def test_rows_of_other_keys_have_other_masks(scheme: str) -> None:
    rows, objective = rows_of(16, 40, words=True), objective_of("masked", scheme=scheme)
    other = objective.prepare(Rows(rows.ids, rows.keys + np.uint64(1), rows.segments, rows.word_starts))
    assert (judged(objective.prepare(rows)) != judged(other)).any(axis=1).mean() > 0.9


def test_a_tokenizer_without_a_mask_is_refused() -> None:
    with pytest.raises(DataFault, match=r"the tokenizer has no \[MASK\] token"):
        objective_of("masked", Vocabulary(10, pad=0))


def test_a_masked_token_is_guessed_from_both_sides_and_not_from_itself() -> None:
    model = model_of("encoder").double().eval()
    objective = objective_of("masked", mask_rate=0.01, replace=(1.0, 0.0, 0.0))
    rows = Rows(np.random.default_rng(0).choice(PLAIN, (1, 16)), np.array([6], np.uint64))
    [place] = np.flatnonzero(judged(objective.prepare(rows))).tolist()
    assert 0 < place < 15

    def scores(changed: int | None) -> Tensor:
        """Of the masked place, when the token at a place is another one."""
        ids = rows.ids.copy()
        if changed is not None:
            ids[0, changed] = 4 + (ids[0, changed] - 3) % len(PLAIN)
        batch = objective.prepare(Rows(ids, rows.keys))
        return model.logits(model(batch.inputs, at=batch.target_positions).y)[0]

    assert torch.equal(scores(place), scores(None))
    for neighbour in (place - 1, place + 1):
        assert (scores(neighbour) - scores(None)).abs().max() > 1e-3


DOCUMENTS = ["ab ab", "c", "abcabcabc abc", "ba", "b cab cabac", "aaaa"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """DOCUMENTS, a letter a token: sep d1 sep d2 ... dn sep."""
    folder = tmp_path_factory.mktemp("text")
    text = folder / "text.txt"
    text.write_text("\n\n".join(DOCUMENTS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINITF_CACHE", str(folder / "cache"))
        yield encoded(sections.Data(train=str(text)), both(Tokenizer.train(sections.Tokenizer(kind="char"), DOCUMENTS)))


def prefixes(store: Store, context: int, pack: Pack) -> list[tuple[list[int], int]]:
    """What may be seen before each target of the text and what it is, worked out document by document."""
    separator, end = store.vocabulary.separator, 0
    assert separator is not None
    found, stream = [], store.ids.tolist()
    for number in range(len(DOCUMENTS)):
        begin, document = end, [separator, *store.document(number).tolist(), separator]
        end = begin + len(document) - 1
        for i, label in enumerate(document[1:]):
            if pack == "none":
                seen = document[i // context * context : i + 1]
            else:
                window = (begin + i) // context * context
                seen = document[max(0, window - begin) : i + 1] if pack == "docs" else stream[window : begin + i + 1]
            found.append((seen, label))
    return found


@pytest.mark.parametrize("context", [4, 8, 64])
@pytest.mark.parametrize("pack", ["concat", "docs", "none"])
def test_every_next_token_is_asked_once_after_what_its_document_says(store: Store, pack: Pack, context: int) -> None:
    """64 is longer than the text: one padded row."""
    objective, found = objective_of("next_token", store.vocabulary), []
    for rows in Windows(store, Shape(context, 1, pack)).eval_rows(3):
        batch = objective.prepare(rows)
        ids, positions, labels = batch.inputs.ids, batch.inputs.token_positions, iter(batch.labels.tolist())
        for row, place in np.argwhere(judged(batch)):
            segments = (
                torch.ones(ids.shape[1]) if positions is None or positions.segments is None else positions.segments[row]
            )
            found.append((ids[row, : place + 1][segments[: place + 1] == segments[place]].tolist(), next(labels)))
        assert batch.counts["next_token"] == len(batch.labels)
    assert found == prefixes(store, context, pack)


@pytest.mark.parametrize("positions", ["rotary", "learned"])
@pytest.mark.parametrize("pack", ["concat", "docs", "none"])
def test_the_loss_of_a_text_is_that_of_each_target_after_its_own_past_alone(
    store: Store, pack: Pack, positions: str
) -> None:
    """Every past is fed by itself, unpadded: so packing, padding and positions are right too."""
    model = (
        model_of("decoder", store.vocabulary.size, 8, positions=settings_of("positions", positions)()).double().eval()
    )
    objective = objective_of("next_token", store.vocabulary)
    losses = [
        F.cross_entropy(model.logits(model(Tokens(torch.tensor([seen]))).y)[0, -1], torch.tensor(label)).item()
        for seen, label in prefixes(store, 8, pack)
    ]
    scores = evaluate(objective.task(model), objective, Windows(store, Shape(8, 1, pack)), Setup(), 4)
    assert scores["loss"] == pytest.approx(np.mean(losses), abs=1e-12)
    assert scores["targets"] == len(losses) == len(store) - 1
    assert scores["bits_per_byte"] == pytest.approx(sum(losses) / np.log(2) / sum(map(len, DOCUMENTS)), abs=1e-12)


def test_the_loss_of_masked_tokens_is_their_mean_surprise() -> None:
    model, rows, objective = model_of("encoder", context=40).double().eval(), rows_of(8, 40), objective_of("masked")
    batch = objective.prepare(rows)
    assert batch.target_positions is not None
    everywhere = model.logits(model(batch.inputs).y).softmax(-1)
    surprises = [-everywhere[i, j, rows.ids[i, j]].log().item() for i, j in np.argwhere(judged(batch))]
    sums = objective.task(model)(batch, None)
    assert sums.parts["masked"].item() == pytest.approx(sum(surprises), abs=1e-9)
    hits = [int(everywhere[i, j].argmax() == rows.ids[i, j]) for i, j in np.argwhere(judged(batch))]
    assert tuple(map(int, objective.task(model).eval()(batch, None).metrics["accuracy"])) == (sum(hits), len(hits))
    assert batch.counts == {
        "masked": len(surprises),
        "tokens": (np.asarray(rows.segments) != 0).sum(),
        "penalty": batch.counts["tokens"],
    }


@pytest.mark.parametrize("training", [True, False])
def test_scores_in_half_precision_are_judged_in_full(training: bool) -> None:
    objective, model = objective_of("next_token"), model_of("decoder").bfloat16()
    batch, task = objective.prepare(rows_of(4, 17)), objective.task(model).train(training)
    with torch.no_grad():
        scores = model.logits(model(batch.inputs, at=batch.target_positions).y)
        sums = task(batch, None)
    assert scores.dtype == torch.bfloat16
    expected = F.cross_entropy(scores.double(), batch.labels, reduction="sum").item()
    assert sums.parts["next_token"].item() == pytest.approx(expected, rel=1e-6)


def test_an_evaluation_never_has_the_scores_of_all_targets_at_once() -> None:
    objective, model = objective_of("next_token"), model_of("decoder", vocabulary_size=4000, context=64)
    batch, task = objective.prepare(rows_of(6, 65)), objective.task(model).eval()
    assert len(batch.labels) * 4000 > 2 * CHUNK
    with torch.no_grad():
        scores = model.logits(model(batch.inputs, at=batch.target_positions).y).flatten(0, -2)
        with Largest() as largest:
            sums = task(batch, None)
    assert largest.elements <= CHUNK
    loss = F.cross_entropy(scores.double(), batch.labels, reduction="sum").item()
    assert sums.parts["next_token"].item() == pytest.approx(loss, rel=1e-6)
    hits, n_targets = sums.metrics["accuracy"]
    assert (int(hits), n_targets) == (int((scores.argmax(-1) == batch.labels).sum()), len(batch.labels))


class Watched(adamw.AdamW):
    """Keeps the gradients of its last step."""

    def step(self, lr: float, grad_factor: float = 1.0) -> None:
        self.seen = {name: p.grad.clone() for name, p in self.parameters.items() if p.tensor.grad is not None}
        super().step(lr, grad_factor)


class Corpus:
    """Rows by number, some of them padded, so that micro-batches have unequal counts."""

    rows = rows_of(20, 17, words=True)

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        assert self.rows.segments is not None
        assert self.rows.word_starts is not None
        return Rows(self.rows.ids[rows], keys, self.rows.segments[rows], self.rows.word_starts[rows])


def trained(
    model_kind: str, objective: Objective, micro: int, steps: int, dtype: torch.dtype
) -> tuple[list[float], Watched, Model]:
    """The losses of so many steps of batches of eight rows, cut into micro-batches."""
    model = model_of(model_kind).to(dtype)
    optimizer = Watched(adamw.Settings(), {name: Parameter(p) for name, p in model.named_parameters()})
    feed = Feed(RowPlan(20, 8, 0), Corpus(), objective.prepare, micro)  # type: ignore[arg-type]
    schedule = TrainingSchedule(cosine.Settings(), 1e-2, Horizon(steps))
    training = Training(objective.task(model), feed, optimizer, schedule, Setup(), clip=1.0)
    return [report.loss for report in train(training)], optimizer, model


def test_how_a_batch_is_cut_changes_nothing() -> None:
    question = objective_of("masked", scheme="whole_word")
    [whole], watched, _ = trained("encoder", question, 8, 1, torch.float32)
    long, _, end = trained("encoder", question, 8, 8, torch.float64)
    for micro in (4, 1):
        [loss], other, _ = trained("encoder", question, micro, 1, torch.float32)
        assert loss == pytest.approx(whole, abs=1e-6)
        for name, gradient in watched.seen.items():
            assert (other.seen[name] - gradient).norm() <= 1e-5 * gradient.norm(), name
        losses, _, other_end = trained("encoder", question, micro, 8, torch.float64)
        assert losses == pytest.approx(long, abs=1e-10)
        for name, weight in end.weights().items():
            torch.testing.assert_close(other_end.weights()[name], weight, rtol=0, atol=1e-10)
    assert long[-1] < long[0]


def test_a_stream_is_judged_as_the_one_long_text_that_it_is() -> None:
    """Four readers, eight steps, and a rate so small that the model stays as it is: each reads 8 x 6 tokens with all
    their past.
    """
    ids, window = np.random.default_rng(0).choice(PLAIN, 4 * 48 + 1), settings_of("attention", "window")(window=10)  # type: ignore[call-arg]
    model = model_of("decoder", context=6, attention=(window,)).double()

    class Windows:
        def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
            return Rows(np.stack([ids[row * 6 : row * 6 + 7] for row in rows]), keys)

    objective = objective_of("next_token")
    feed = Feed(RowPlan(32, 4, 0, stream=True), Windows(), objective.prepare, 2)  # type: ignore[arg-type]
    schedule, optimizer = TrainingSchedule(cosine.Settings(), 1e-300, Horizon(8)), build(adamw.Settings(), model)
    streamed = [report.loss for report in train(Training(objective.task(model), feed, optimizer, schedule, Setup()))]
    texts = torch.from_numpy(np.stack([ids[reader * 48 : reader * 48 + 49] for reader in range(4)]))
    scores = model.logits(model(Tokens(texts[:, :-1])).y)
    whole = (
        F.cross_entropy(scores.flatten(0, 1), texts[:, 1:].flatten(), reduction="none").view(4, 8, 6).mean(dim=(0, 2))
    )
    assert streamed == pytest.approx(whole.tolist(), abs=1e-10)


def test_a_masked_model_makes_no_scores_where_nobody_asks() -> None:
    """Nothing near batch x length x vocabulary elements is made, forward or backward."""
    batch_size, length, vocabulary = 8, 64, Vocabulary(4000, 0, 1, 2, 3)
    ids = np.random.default_rng(0).integers(4, 4000, (batch_size, length))
    objective, model = objective_of("masked", vocabulary), model_of("encoder", 4000, length, head="bert")
    batch, task = objective.prepare(Rows(ids, np.arange(batch_size, dtype=np.uint64))), objective.task(model)
    with Largest() as largest:
        task(batch, None).parts["masked"].backward()
    assert largest.elements < batch_size * length * 4000 / 5
