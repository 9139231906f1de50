"""SRU in the fast decoder, against one pass over the whole text."""

from typing import Any

import pytest
from test_generation_fast_decoder import assert_goes_on_as_the_whole, assert_needs_constant_memory
from test_models import model_of


@pytest.mark.parametrize(
    "settings", [{}, {"residual": False, "norm_place": "post"}, {"d_ff": 0, "dropout_rate": 0.5}], ids=str
)
def test_recurrences_continue_as_one_pass(settings: dict[str, Any]) -> None:
    """Beside attention with a cache."""
    model = model_of("decoder", ("sru", "softmax"), "none", n_layers=3, **settings)
    assert_goes_on_as_the_whole(model, (5, 5))
    assert_goes_on_as_the_whole(model, (3, 20, 1))


def test_a_recurrence_needs_constant_memory() -> None:
    assert_needs_constant_memory(model_of("decoder", ("sru",), "none", n_layers=2))
