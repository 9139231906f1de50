"""SRU in the fast decoder, against one pass over the whole text."""

from typing import Any

import pytest
from test_generation_decoding import some_ids
from test_generation_fast_decoder import assert_goes_on_as_the_whole
from test_models import model_of

from mini_tf.generation.decoding import DecodingState
from mini_tf.generation.fast_decoder import FastDecoder
from mini_tf.nn.state import nbytes


@pytest.mark.parametrize(
    "settings", [{}, {"residual": False, "norm_place": "post"}, {"d_ff": 0, "dropout_rate": 0.5}], ids=str
)
def test_recurrences_continue_as_one_pass(settings: dict[str, Any]) -> None:
    """Beside attention with a cache."""
    model = model_of("decoder", ("sru", "softmax"), "none", n_layers=3, **settings)
    assert_goes_on_as_the_whole(model, (5, 5))
    assert_goes_on_as_the_whole(model, (3, 20, 1))


def test_a_recurrence_needs_constant_memory() -> None:
    model = model_of("decoder", ("sru",), "none", n_layers=2)
    decoding = DecodingState(model, [[1, 2, 3]], 1000)
    decoding.prefill()
    sizes = []
    for ids in some_ids(200, 1, seed=4):
        decoding.decode(ids)
        assert isinstance(decoding._decoder, FastDecoder)
        assert decoding._decoder._kv_cache is None
        sizes.append(sum(map(nbytes, decoding._decoder._states.values())))
    assert len(set(sizes)) == 1
