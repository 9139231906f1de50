"""The tests check shapes in signatures at every call (shapes.py): a wrong one is seen before a call and after it."""

import jaxtyping
import pytest
import torch
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float, Int
from shapes import checked
from torch import Tensor

from mini_tf.nn.layers.norm import RMSNorm, rms_norm


def test_the_hook_is_in_force() -> None:
    assert jaxtyping.jaxtyped is checked
    with pytest.raises(BeartypeCallHintViolation):
        rms_norm(3, 1e-6)  # type: ignore[arg-type]
    with pytest.raises(BeartypeCallHintViolation):
        RMSNorm.forward(torch.nn.Identity(), "x")  # type: ignore[arg-type]


@checked(typechecker=beartype)
def outer(a: Float[Tensor, "n"], b: Float[Tensor, "n"], columns: int | None = None) -> Float[Tensor, "n n"]:
    return torch.outer(a, b)[:, :columns]


def test_names_of_axes_bind_the_arguments_and_the_result_of_one_call() -> None:
    three, two = torch.ones(3), torch.ones(2)
    assert outer(three, three).shape == (3, 3)
    assert outer(two, two).shape == (2, 2)
    with pytest.raises(BeartypeCallHintViolation):
        outer(three, two)
    with pytest.raises(BeartypeCallHintViolation):
        outer(three, three, 2)
    with pytest.raises(BeartypeCallHintViolation):
        outer(two.long(), two.long())


@checked(typechecker=beartype)
def some(tokens: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
    return tokens[tokens > 0] / 2


def test_a_call_like_an_earlier_one_has_its_own_result_checked() -> None:
    for _ in range(2):
        assert some(torch.tensor([1, 2])).tolist() == [0.5, 1]
        with pytest.raises(BeartypeCallHintViolation):
            some(torch.tensor([1, 0]))
