"""Linear attention in the fast decoder, against one pass over the whole text."""

from typing import Any

import pytest
from test_generation_fast_decoder import assert_goes_on_as_the_whole, assert_needs_constant_memory
from test_models import model_of

ALL = ("linear", "softmax", "favor")


@pytest.mark.parametrize(
    ("mixers", "settings"),
    [
        *((mixers, {}) for mixers in (("favor",), ("linear",), ALL)),
        *((ALL, keys) for keys in ({"n_kv_heads": 1}, {"d_k": 10, "d_v": 4, "bias": True}, {"ngrams": (50, 60)})),
    ],
    ids=str,
)
def test_recurrent_attention_continues_as_one_pass(mixers: tuple[str, ...], settings: dict[str, Any]) -> None:
    model = model_of("decoder", mixers, "rotary", n_layers=3, **settings)
    assert_goes_on_as_the_whole(model, (5, 5))
    assert_goes_on_as_the_whole(model, (3, 20, 1))


@pytest.mark.parametrize("kind", ["linear", "favor"])
def test_recurrent_attention_needs_constant_memory(kind: str) -> None:
    assert_needs_constant_memory(model_of("decoder", (kind,), "none", n_layers=2))
