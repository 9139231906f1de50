"""The lean step is the model: for every setting of the parts it knows, against one pass over the whole text without any
state.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from test_generation_decoding import STEPS, cached, some_ids, uncached
from test_models import CONTEXT, model_of, usable
from toys import causal_mixers, mixer_settings, tiny_mixer

from mini_tf.generation import array_stack
from mini_tf.generation.array_stack import ArrayStack
from mini_tf.generation.decoding import CachedModel, DecodingState, pad
from mini_tf.generation.fast_attention import EXTRA_CAPACITY, KVCache
from mini_tf.generation.fast_decoder import FastDecoder
from mini_tf.nn.model import Model
from mini_tf.nn.state import nbytes
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.system.errors import DataFault

FAST = {"softmax", "window"}
SETTINGS: dict[str, dict[str, Any]] = {
    **{
        f"{norm} {place}": {"norm": norm, "norm_place": place, "bias": True}
        for norm in ("layer", "rms")
        for place in ("pre", "post", "none")
    },
    **{activation: {"activation": activation} for activation in ("gelu", "gelu_tanh", "relu", "relu2", "swiglu")},
    "no residual": {"residual": False, "init_std": 0.6},
    "no feed-forward": {"d_ff": 0},
    "as many keys as heads": {"n_kv_heads": 4},
    "one key": {"n_kv_heads": 1},
    "one head": {"n_heads": 1, "n_kv_heads": 1},
    "wide keys": {"d_k": 10, "d_v": 4},
    "embedding": {"embed_norm": True, "embed_scale": True, "n_types": 2},
    "head": {"head": "bert", "tied": False},
    "n-grams": {"ngrams": (50, 60, 70)},
    "norms without weights": {"norm": "rms", "norm_weight": False},
    "dropout": {"dropout_rate": 0.5},
}


def softmax_with(**settings: Any) -> Any:
    return {
        "attention": (
            settings_of("attention", "softmax")(**settings),
            settings_of("attention", "window")(window=3, **settings),
        )
    }


SETTINGS["persistent"] = {
    "attention": (settings_of("attention", "softmax")(n_persistent=5, qk_norm=True), mixer_settings("window"))
}
SETTINGS |= {
    "qk_norm": softmax_with(qk_norm=True),
    "weights of qk_norm": softmax_with(qk_norm="weight"),
    "no scale": softmax_with(scale="none"),
    "a scale": softmax_with(scale=0.3),
}


def assert_goes_on_as_the_whole(
    model: Model,
    lengths: tuple[int, ...],
    n: int = STEPS,
    context: int = CONTEXT,
    most_products: Sequence[int] = (array_stack.MOST_PRODUCTS,),
) -> None:
    """Texts of these lengths, together, for n steps; with each of these limits of what numpy computes."""
    assert FastDecoder.fits(model)
    texts = [some_ids(length, seed=length).tolist() for length in lengths]
    following = some_ids(n, len(texts), seed=4)
    expected = [uncached(model, text, following[:, row].tolist(), context) for row, text in enumerate(texts)]
    for limit in most_products:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(array_stack, "MOST_PRODUCTS", limit)
            assert limit or not ArrayStack.fits(model, len(texts))
            together = cached(model, texts, following, context)
        torch.testing.assert_close(together, torch.stack(expected, dim=1), rtol=0, atol=1e-8)


def assert_needs_constant_memory(model: Model) -> None:
    """However long the text."""
    decoding = DecodingState(model, [[1, 2, 3]], 1000)
    decoding.prefill()
    sizes = []
    for ids in some_ids(200, 1, seed=4):
        decoding.decode(ids)
        assert isinstance(decoding._decoder, FastDecoder)
        assert decoding._decoder.kv_cache is None
        sizes.append(sum(map(nbytes, decoding._decoder.states.values())))
    assert len(set(sizes)) == 1


WITHOUT_POSITIONS = {
    *(f"{norm} {place}" for norm in ("layer", "rms") for place in ("pre", "post", "none")),
    *(
        "gelu",
        "gelu_tanh",
        "relu",
        "relu2",
        "swiglu",
        "no residual",
        "no feed-forward",
        "head",
        "norms without weights",
    ),
}
"""Settings of parts in which positions take no part; one kind of them is enough there."""


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        (name, word)
        for name in SETTINGS
        for word in ("rotary", "alibi")
        if word == "rotary" or name not in WITHOUT_POSITIONS
    ],
)
def test_any_setting_of_the_parts_goes_on_as_the_whole(name: str, positions: str) -> None:
    """With a window in one of the layers; padded and not; beyond the context; in numpy and in torch."""
    mixers = {} if "attention" in SETTINGS[name] else {"mixers": ("window", "softmax")}
    model = model_of("decoder", positions=positions, n_layers=2, **mixers, **SETTINGS[name])
    assert_goes_on_as_the_whole(model, (5,))
    assert_goes_on_as_the_whole(model, (3, 20, 1), most_products=(array_stack.MOST_PRODUCTS, 0))


def fast_positions() -> list[str]:
    """Without a limit, and of which the fast decoder can compute one step for all layers."""
    built = {word: settings_of("positions", word)().build_layers(2, 8, 2, 4, 8) for word in listing("positions")}  # type: ignore[attr-defined]
    fast = [word for word, one in built.items() if one.distance_only and one.orthogonal and one.of_layer(0) is one]
    return [word for word in fast if built[word].max_positions is None]


@pytest.mark.parametrize("positions", fast_positions())
@pytest.mark.parametrize("lengths", [(3,), (3, 70)])
def test_the_room_grows_with_the_text(positions: str, lengths: tuple[int, ...]) -> None:
    model = model_of("decoder", ("softmax", "window"), positions, n_layers=2)
    assert_goes_on_as_the_whole(model, lengths, n=3 * EXTRA_CAPACITY, context=1000)


def test_there_may_be_as_many_rows_as_numbers_in_a_query() -> None:
    """Turning matrices are made ahead for all rows together: (rows, d_k, d_k) each."""
    assert_goes_on_as_the_whole(
        model_of("decoder", positions="rotary", n_layers=1, d_k=4), (3, 1, 2, 5), n=3, context=1000
    )


@pytest.mark.parametrize("positions", ["alibi", "t5"])
def test_a_bias_has_room_for_every_distance_whatever_the_number_of_heads(positions: str) -> None:
    model = model_of("decoder", positions=positions, n_layers=1, n_heads=16, n_kv_heads=16, d_k=2, d_v=2)
    assert_goes_on_as_the_whole(model, (1,), n=12, context=1000)


def test_what_is_kept_is_copied_only_when_its_room_is_full() -> None:
    state = {"k": torch.ones(1, 2, 3, 4), "v": torch.ones(1, 2, 3, 5)}
    kept, positions = KVCache([state], 3), []
    for n in range(3, 3 + EXTRA_CAPACITY + 1):
        [(_, _, keys, _)] = kept.at(n)
        positions.append(keys.data_ptr())
    assert positions[:EXTRA_CAPACITY] == positions[:1] * EXTRA_CAPACITY
    assert positions[EXTRA_CAPACITY] != positions[0]


def test_rows_change_positions_in_models_with_a_bias_turns_and_a_window() -> None:
    own = ("window", "softmax")
    for mixers, positions in ((own, "alibi"), (own, "rotary"), (own, "learned")):
        model = model_of("decoder", mixers, positions, n_layers=2, ngrams=(50, 60))
        texts = [some_ids(length, seed=length).tolist() for length in (4, 9, 2)]
        following, rows = some_ids(5, 3, seed=4), torch.tensor([2, 0, 0])
        reading = DecodingState(model, texts, CONTEXT)
        reading.prefill()
        for ids in following[:2]:
            reading.decode(ids)
        reading.select(rows)
        found = [reading.decode(ids[rows]).log_softmax(dim=-1) for ids in following[2:]]
        for place, row in enumerate(rows.tolist()):
            expected = uncached(model, texts[row], following[:, row].tolist(), CONTEXT)[3:]
            torch.testing.assert_close(torch.stack(found)[:, place], expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("lengths", [(6, 6), (6, 2)])
def test_in_single_precision_it_is_the_ordinary_path_to_a_hundred_thousandth(lengths: tuple[int, ...]) -> None:
    model = model_of("decoder", positions="rotary", d_model=64, d_k=16, init_std=0.1, **SETTINGS["swiglu"]).float()
    with torch.inference_mode():
        tokens = pad([some_ids(length, seed=length).tolist() for length in lengths], torch.device("cpu"))
        states = [model(tokens, state=model.start(2)).state for _ in range(2)]
        lean, ordinary = FastDecoder(model, states[0], lengths), CachedModel(model, states[1])
        for ids in some_ids(9, 2, seed=4):
            found, expected = (memory.decode(ids).log_softmax(dim=-1) for memory in (lean, ordinary))
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({}, True),
        ({"norm": "layer", "bias": True, "activation": "gelu"}, True),
        ({"norm": "rms", "norm_weight": False}, True),
        ({"mixers": ("sru",)}, False),
        (SETTINGS["persistent"], False),
    ],
)
def test_small_models_of_softmax_attention_are_decoded_in_numpy(settings: dict[str, Any], fits: bool) -> None:
    model = model_of("decoder", **{"positions": "none", "n_layers": 1, **settings})
    assert ArrayStack.fits(model, 2) == fits
    assert not ArrayStack.fits(model, 2**20)
    assert not ArrayStack.fits(model.bfloat16(), 2)


def test_products_in_blocks_are_those_of_whole_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of up to 24 x 8 numbers in blocks of at most 16, and attention to two keys at a time."""
    monkeypatch.setattr(array_stack, "BLOCK", 16)
    settings: dict[str, Any] = {"d_model": 8, "d_k": 6, "d_v": 4, "d_ff": 13, "n_heads": 4, "n_kv_heads": 2}
    for positions in ("rotary", "alibi"):
        model = model_of("decoder", ("softmax", "window"), positions, n_layers=2, **settings)
        assert ArrayStack.fits(model, 3)
        assert_goes_on_as_the_whole(model, (5,))
        assert_goes_on_as_the_whole(model, (3, 20, 1))


def test_weights_keys_and_values_are_not_copied_to_numpy() -> None:
    """A change of a weight in place is a change of the next logits."""
    model = model_of("decoder", positions="learned", n_layers=1)
    decoding = DecodingState(model, [[1, 2, 3], [4, 5, 6]], CONTEXT)
    decoding.prefill()
    cache = decoding._decoder.kv_cache  # type: ignore[union-attr]
    assert isinstance(cache, KVCache)
    before = decoding.decode(torch.tensor([1, 1]))
    assert cache.keys[0, :, :, 3].abs().min() > 0
    with torch.no_grad():
        model.stack.blocks[0].feed_forward.part.down.weight.mul_(2)  # type: ignore[attr-defined]
    decoding._decoder.n = 3  # type: ignore[union-attr]
    assert (decoding.decode(torch.tensor([1, 1])) - before).abs().max() > 1e-3


@pytest.mark.parametrize("mixer", causal_mixers())
def test_only_mixers_that_declare_it_are_decoded_fast(mixer: str) -> None:
    """Others go on as the whole too."""
    positions = next(word for word in ("rotary", "none") if usable(mixer, word))
    model = model_of("decoder", ("softmax", mixer), positions, n_layers=2)
    declared = tiny_mixer(mixer).fast_decoding() is not None
    assert FastDecoder.fits(model) == declared
    assert declared or mixer not in FAST
    assert not FastDecoder.fits(model.train())
    model.eval()
    text, following = some_ids(5).tolist(), some_ids(STEPS, 1, seed=4)
    expected = uncached(model, text, following[:, 0].tolist(), CONTEXT)
    torch.testing.assert_close(cached(model, [text], following, CONTEXT)[:, 0], expected, rtol=0, atol=1e-8)
    assert not FastDecoder.fits(model_of("encoder"))


def test_learned_positions_end_where_they_end() -> None:
    reading = DecodingState(model_of("decoder", positions="learned"), [[1] * (CONTEXT - 1)], context=CONTEXT + 5)
    reading.prefill()
    reading.decode(torch.tensor([1]))
    with pytest.raises(DataFault, match="a text of 17 tokens is longer than the 16 learned positions"):
        reading.decode(torch.tensor([1]))


@pytest.mark.parametrize(
    ("settings", "alone"),
    [({}, True), ({"dropout_rate": 0.5}, True), ({"n_types": 2}, False), ({"ngrams": (9,)}, False)],
)
def test_an_embedding_that_is_only_a_table_is_read_as_one(settings: dict[str, Any], alone: bool) -> None:
    model = model_of("decoder", **settings)
    model(Tokens(some_ids(1, 3)), state=(state := model.start(1)))
    mixed = model(Tokens(some_ids(1, 3)), state=state)
    assert FastDecoder(model, mixed.state, [3]).network._is_lookup == alone
