"""One vector for a row, by every pool, is what numpy makes of its real tokens; the answer is a linear map of it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import seeded

from mini_tf.nn.layers.head import DenseLayer, TaskHead, pooled, token_index
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens


def gelu(x: Any) -> Any:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def tokens(lengths: list[int]) -> Tokens:
    """Rows of so many tokens, padded on the right; without positions where none is padded."""
    width = max(lengths)
    segments = torch.tensor([[1] * length + [0] * (width - length) for length in lengths])
    return Tokens(
        torch.zeros(len(lengths), width, dtype=torch.long), None if segments.all() else TokenPositions.packed(segments)
    )


@settings(deadline=None, max_examples=40)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_every_pool_is_made_of_the_real_tokens_alone(lengths: list[int]) -> None:
    inputs = tokens(lengths)
    hidden = seeded(*inputs.ids.shape, 3) - 5.0  # a maximum that pads of 0 would win
    for row, length in enumerate(lengths):
        hidden[row, length:] = torch.nan  # what stands in the pads reaches nothing
    rows = [hidden[row, :length].numpy() for row, length in enumerate(lengths)]
    np.testing.assert_allclose(pooled("mean", hidden, inputs).numpy(), [row.mean(0) for row in rows], atol=1e-12)
    np.testing.assert_array_equal(pooled("max", hidden, inputs).numpy(), [row.max(0) for row in rows])
    query = seeded(3)
    weights = [np.exp(row @ query.numpy())[:, None] for row in rows]
    means = [(weight * row).sum(0) / weight.sum() for weight, row in zip(weights, rows, strict=True)]
    np.testing.assert_allclose(pooled("attention", hidden, inputs, query).numpy(), means, atol=1e-12)
    for pool, place in (("first", 0), ("last", -1), *((("text_end", -2),) if min(lengths) > 1 else ())):
        flat = hidden.flatten(0, 1)[token_index(pool, inputs)]  # type: ignore[arg-type]
        np.testing.assert_array_equal(flat.numpy(), [row[place] for row in rows])


def test_pads_get_no_gradient_from_a_pool() -> None:
    hidden = seeded(2, 4, 3).requires_grad_()
    inputs = tokens([2, 4])
    for pool in ("mean", "max"):
        (gradient,) = torch.autograd.grad(pooled(pool, hidden, inputs).sum(), hidden)
        assert gradient[0, 2:].abs().max() == 0
        torch.testing.assert_close(gradient.sum(1), torch.ones(2, 3).double())


def test_an_answer_is_a_linear_map_with_dropout_before_it_in_training_alone() -> None:
    torch.manual_seed(0)
    answer, hidden = TaskHead(8, 3, 0.5).double(), seeded(5, 8)
    expected = hidden @ answer.linear.weight.T + answer.linear.bias
    torch.testing.assert_close(answer.eval()(hidden), expected)
    torch.manual_seed(1)
    drawn = torch.stack([answer.train()(hidden) for _ in range(2000)])
    assert not torch.allclose(drawn[0], expected)
    torch.testing.assert_close(drawn.mean(0), expected, rtol=0, atol=0.15)
    with pytest.raises(ValueError, match="a task head has no vocabulary"):
        answer(hidden, torch.tensor([1]))


@pytest.mark.parametrize(("dense", "activation"), [("tanh", np.tanh), ("relu", lambda x: x.clip(0)), ("gelu", gelu)])
def test_a_dense_layer_stands_between_two_dropouts(dense: Any, activation: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    head, hidden = TaskHead(8, 3, 0.5, dense=DenseLayer(8, dense), bias=False).double(), seeded(5, 8)
    assert head.dense is not None
    assert head.linear.bias is None
    assert not head.dense.bias.any()
    assert head.dense.weight.std().item() == pytest.approx(8**-0.5, rel=0.3)
    inner = activation((hidden @ head.dense.weight.T).detach().numpy())
    with torch.no_grad():
        np.testing.assert_allclose(head.eval()(hidden).numpy(), inner @ head.linear.weight.numpy().T, atol=1e-12)
        head.linear.weight.data, head.dense.weight.data = torch.eye(8).double(), torch.eye(8).double()
        dropped = head.train()(torch.ones(1, 8, dtype=torch.double).expand(500, -1))
    kept_twice = float(activation(np.float64(2.0))) * 2
    assert (dropped.abs() < 1e-12).double().mean().item() == pytest.approx(0.75, abs=4 * (0.75 * 0.25 / 4000) ** 0.5)
    torch.testing.assert_close(dropped.max().item(), kept_twice)


def test_a_new_answer_has_scores_of_about_unit_size_and_no_favourite() -> None:
    torch.manual_seed(0)
    answer = TaskHead(256, 500, 0.1)
    assert answer.linear.weight.std().item() == pytest.approx(1 / 16, rel=0.02)
    assert answer.linear.bias.abs().max() == 0
