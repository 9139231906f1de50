"""Linear attention in the fast decoder, against one pass over the whole text."""

from typing import Any

import pytest
from test_generation_decoding import some_ids
from test_generation_fast_decoder import assert_goes_on_as_the_whole
from test_models import model_of

from mini_tf.generation.decoding import DecodingState
from mini_tf.generation.fast_decoder import FastDecoder
from mini_tf.nn.state import nbytes


@pytest.mark.parametrize("mixers", [("favor",), ("linear",), ("linear", "softmax", "favor")], ids=str)
@pytest.mark.parametrize(
    "settings", [{}, {"n_kv_heads": 1}, {"d_k": 10, "d_v": 4, "bias": True}, {"ngrams": (50, 60)}], ids=str
)
def test_recurrent_attention_continues_as_one_pass(mixers: tuple[str, ...], settings: dict[str, Any]) -> None:
    model = model_of("decoder", mixers, "rotary", n_layers=3, **settings)
    assert_goes_on_as_the_whole(model, (5, 5))
    assert_goes_on_as_the_whole(model, (3, 20, 1))


@pytest.mark.parametrize("kind", ["linear", "favor"])
def test_recurrent_attention_needs_constant_memory(kind: str) -> None:
    model = model_of("decoder", (kind,), "none", n_layers=2)
    decoding = DecodingState(model, [[1, 2, 3]], 1000)
    decoding.prefill()
    sizes = []
    for ids in some_ids(200, 1, seed=4):
        decoding.decode(ids)
        assert isinstance(decoding._decoder, FastDecoder)
        assert decoding._decoder._kv_cache is None
        sizes.append(sum(map(nbytes, decoding._decoder._states.values())))
    assert len(set(sizes)) == 1
