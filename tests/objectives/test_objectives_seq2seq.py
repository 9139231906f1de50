"""Sequence to sequence: what is read, asked and judged of a pair, label smoothing against torch and formulas, the
paper's schedule.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck

from mini_tf.data.batch import Rows
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.nn.layers import cross_entropy as fused
from mini_tf.nn.layers.cross_entropy import cross_entropy
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import Objective
from mini_tf.recipe.kinds import settings_of
from mini_tf.schedules import inverse_sqrt
from mini_tf.system.errors import DataFault
from mini_tf.training.schedule import Horizon, TrainingSchedule

PAD, SEP, V = 0, 2, 40
VOCABULARY = Vocabulary(V, pad=PAD, unk=1, separator=SEP, mask=3)
EXACT = {"rtol": 0, "atol": 1e-10}


def seq2seq(**settings: Any) -> Objective:
    objective = settings_of("objectives", "seq2seq")(**settings).build(VOCABULARY)  # type: ignore[attr-defined]
    assert isinstance(objective, Objective)
    return objective


def model_of(**settings: Any) -> Model:
    torch.manual_seed(0)
    small = {"d_model": 16, "n_layers": 2, "n_heads": 2, "init_std": 0.4}
    return settings_of("models", "encoder_decoder")(**small | settings).build(V, 16).double()  # type: ignore[attr-defined, no-any-return]


def rows_of(pairs: list[tuple[list[int], list[int]]], pad: int = PAD) -> Rows:
    """Pairs as the plan gives them: sources end in the separator, targets begin and end with it; pads stand on the
    right.
    """
    sources, targets = ([*source, SEP] for source, _ in pairs), ([SEP, *target, SEP] for _, target in pairs)
    (source_ids, source_segments), (ids, segments) = padded(list(sources), pad), padded(list(targets), pad)
    keys = np.arange(len(pairs), dtype=np.uint64)
    return Rows(ids, keys, segments, None, Rows(source_ids, keys, source_segments))


def padded(rows: list[list[int]], pad: int) -> tuple[np.ndarray, np.ndarray | None]:
    """ids and segments; of rows that are all as long as each other none."""
    longest = max(map(len, rows))
    ids = np.array([row + [pad] * (longest - len(row)) for row in rows])
    segments = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, None if segments.all() else segments


def some_pairs(n: int, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    draw = np.random.default_rng(seed)
    return [tuple(draw.integers(4, V, draw.integers(low, 8)).tolist() for low in (1, 0)) for _ in range(n)]  # type: ignore[misc]


# The question


def test_a_target_is_read_from_its_opening_separator_and_asked_for_up_to_its_closing_one() -> None:
    batch = seq2seq().prepare(rows_of([([7, 8, 9], [11, 12, 13]), ([5], [21])]))
    assert batch.inputs.ids.tolist() == [[SEP, 11, 12, 13], [SEP, 21, SEP, PAD]]
    assert batch.target_positions is not None
    assert batch.target_positions.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.labels.tolist() == [11, 12, 13, SEP, 21, SEP]
    assert batch.inputs.token_positions is not None
    # The second row's closing separator is asked for, but is not read: to the model it is padding.
    assert batch.inputs.token_positions.segments is not None
    assert batch.inputs.token_positions.segments.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert batch.source is not None
    assert batch.source.token_positions is not None
    assert batch.source.ids.tolist() == [[7, 8, 9, SEP], [5, SEP, PAD, PAD]]
    assert batch.source.token_positions.segments is not None
    assert batch.source.token_positions.segments.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert batch.counts == {"seq2seq": 6, "tokens": 6, "penalty": 6}


def test_pairs_of_equal_lengths_take_no_tensor_of_positions() -> None:
    batch = seq2seq().prepare(rows_of([([7, 8], [11, 12, 13]), ([5, 6], [21, 22, 23])]))
    assert batch.source is not None
    assert (batch.target_positions, batch.inputs.token_positions, batch.source.token_positions) == (None, None, None)
    assert batch.labels.tolist() == [11, 12, 13, SEP, 21, 22, 23, SEP]
    assert batch.counts["seq2seq"] == 8


def test_every_target_token_and_its_end_is_asked_for_once_at_the_place_before_it() -> None:
    pairs = some_pairs(30)
    batch = seq2seq().prepare(rows_of(pairs))
    assert batch.target_positions is not None
    length = batch.inputs.ids.shape[1]
    asked: list[list[tuple[int, int]]] = [[] for _ in pairs]
    for place, label in zip(batch.target_positions.tolist(), batch.labels.tolist(), strict=True):
        asked[place // length].append((place % length, label))
    assert asked == [list(enumerate([*target, SEP])) for _, target in pairs]
    assert batch.counts["seq2seq"] == batch.counts["tokens"] == sum(len(target) + 1 for _, target in pairs)


def test_a_vocabulary_without_an_end_is_refused() -> None:
    with pytest.raises(DataFault, match="no separator token"):
        settings_of("objectives", "seq2seq")().build(Vocabulary(V, pad=PAD, unk=1, separator=None, mask=3))  # type: ignore[attr-defined]


# The judgement


def sum_of(model: Model, rows: Rows, **settings: Any) -> Tensor:
    """The judgement of these rows, in the mode that the model is in."""
    objective = seq2seq(**settings)
    task = objective.task(model)
    task.train(model.training)
    sums = task(objective.prepare(rows))
    return sums.parts["seq2seq"]  # type: ignore[no-any-return]


def test_padding_and_company_change_no_pairs_smoothed_loss() -> None:
    """The sum over a batch is the sum over its pairs alone, whatever stands in the pads; without smoothing: the
    contract.
    """
    model, pairs, smoothed = model_of().train(), some_pairs(6), {"label_smoothing": 0.1}
    together = sum_of(model, rows_of(pairs), **smoothed)
    alone = torch.stack([sum_of(model, rows_of([pair]), **smoothed) for pair in pairs])
    torch.testing.assert_close(together, alone.sum(), **EXACT)
    torch.testing.assert_close(sum_of(model, rows_of(pairs, pad=17), **smoothed), together, **EXACT)


def test_the_loss_is_that_of_the_chain_rule_token_by_token() -> None:
    """-log p(target, end | source) from the model's own scores, one prefix after the other."""
    model, (source, target) = model_of().eval(), ([7, 8, 9], [11, 12, 11])
    expected, memory = 0.0, model.encode(Tokens(torch.tensor([[*source, SEP]])))  # type: ignore[operator]
    for n, label in enumerate([*target, SEP]):
        hidden = model(Tokens(torch.tensor([[SEP, *target[:n]]])), memory).y
        expected -= model.logits(hidden)[0, -1].log_softmax(dim=-1)[label].item()
    for mode in (True, False):
        assert sum_of(model.train(mode), rows_of([(source, target)])).item() == pytest.approx(expected, abs=1e-10)


def test_evaluation_judges_without_smoothing() -> None:
    model, rows = model_of(), rows_of(some_pairs(5))
    trained = [sum_of(model.train(), rows, label_smoothing=share).item() for share in (0.0, 0.3)]
    judged = [sum_of(model.eval(), rows, label_smoothing=share).item() for share in (0.0, 0.3)]
    assert judged[0] == judged[1] == pytest.approx(trained[0], abs=1e-10)
    assert abs(trained[0] - trained[1]) > 1e-3


# Label smoothing


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_smoothed_cross_entropy_is_torchs_in_value_and_gradients(
    smoothing: float, bias: bool, chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chunked:
        monkeypatch.setattr(fused, "CHUNK", 1)
    rows = 2 * fused.FEWEST + 7
    inputs = [drawn(rows, 5), drawn(30, 5, seed=1), *([drawn(30, seed=2)] if bias else [])]
    labels = torch.randint(30, (rows,), generator=torch.Generator().manual_seed(3))
    ours = cross_entropy(inputs[0], inputs[1], inputs[2] if bias else None, labels, smoothing)
    theirs = F.cross_entropy(F.linear(*inputs), labels, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(ours, theirs)
    for mine, expected in zip(
        torch.autograd.grad(2 * ours, inputs), torch.autograd.grad(2 * theirs, inputs), strict=True
    ):
        torch.testing.assert_close(mine, expected)
    with torch.no_grad():  # the way without gradients is another one
        torch.testing.assert_close(
            cross_entropy(inputs[0], inputs[1], inputs[2] if bias else None, labels, smoothing), theirs
        )


def test_smoothed_cross_entropy_is_the_divergence_from_the_smoothed_labels_and_their_entropy() -> None:
    """With q = (1 - e) onehot + e / V it is KL(q || p) + H(q), and H(q) is all that is left of it where p = q."""
    share, size = 0.1, 7
    hidden, weight, labels = drawn(4, 5), drawn(size, 5, seed=1), torch.tensor([0, 3, 3, 6])
    p = F.linear(hidden, weight).softmax(dim=-1)
    q = torch.full((4, size), share / size, dtype=torch.float64)
    q[torch.arange(4), labels] += 1 - share
    divergence, entropy = (q * (q / p).log()).sum(), -(q * q.log()).sum()
    torch.testing.assert_close(cross_entropy(hidden, weight, None, labels, share), divergence + entropy)
    own = 1 - share + share / size
    least = -(own * math.log(own) + (size - 1) * share / size * math.log(share / size))
    torch.testing.assert_close(
        cross_entropy(q.log(), torch.eye(size).double().requires_grad_(), None, labels, share).item(), 4 * least
    )


def test_smoothed_cross_entropy_passes_gradcheck_and_is_least_at_the_smoothed_labels() -> None:
    labels, inputs = torch.tensor([1, 0, 3]), (drawn(3, 2), drawn(4, 2, seed=1), drawn(4, seed=2))
    assert gradcheck(lambda h, w, b: cross_entropy(h, w, b, labels, 0.2) * 0.3, inputs)
    q = torch.full((3, 4), 0.05, dtype=torch.float64)
    q[torch.arange(3), labels] += 0.8
    scores = q.log().requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(scores, torch.eye(4).double(), None, labels, 0.2), scores)
    torch.testing.assert_close(gradient, torch.zeros(3, 4).double())


# The schedule


@pytest.mark.parametrize(("d_model", "warmup"), [(512, 4000), (64, 10)])
def test_the_rate_of_the_2017_paper_is_an_inverse_root_with_its_peak_at_the_end_of_the_warmup(
    d_model: int, warmup: int
) -> None:
    """Section 5.3: d_model^-0.5 min(step^-0.5, step warmup^-1.5), whose steps count from 1."""
    schedule = TrainingSchedule(
        inverse_sqrt.Settings(warmup=warmup), d_model**-0.5 * warmup**-0.5, Horizon(steps=100_000)
    )
    for step in (1, 2, warmup - 1, warmup, warmup + 1, 3 * warmup, 99_999):
        assert schedule.lr(step - 1, 0.0) == pytest.approx(
            d_model**-0.5 * min(step**-0.5, step * warmup**-1.5), rel=1e-12
        )
