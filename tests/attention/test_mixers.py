"""The contract of mixers, run on every kind and on strangers.

A new file in mini_tf/attention is tested here without a line written for it.
"""

from dataclasses import replace

import pytest
import torch
from strangers import made
from toys import every_mixer, mixer_settings, own_view, seeded

from mini_tf.attention import window
from mini_tf.nn import state as states
from mini_tf.nn import token_positions
from mini_tf.nn.layers import attention_kernels
from mini_tf.nn.layers.kernels import ResidualLinear
from mini_tf.nn.mixer import AttentionDims, LayerSpec, MixerSettings, carry
from mini_tf.nn.token_cache import token_positions_of
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.recipe.kinds import settings_of
from mini_tf.testing import attention, run_all
from mini_tf.testing.tiny.mixers import DIMS, EXACT, B, L, TinyMixer, positions_of_layout, run_in_blocks

STRANGERS = made("attention")
EVERY_MIXER = every_mixer() | STRANGERS
NO_POSITIONS = {"none": None}
FURTHER_BIASES = {"alibi", "dynamic_window", "transformer_xl"}
"""Strangers have one positional encoding for each point where one applies: of biases that of T5."""


@pytest.mark.parametrize("word", EVERY_MIXER)
def test_a_mixer_keeps_its_contract(word: str) -> None:
    left_out = FURTHER_BIASES if word in STRANGERS else set()
    cases = attention.mixer_cases(EVERY_MIXER[word])
    run_all(case for case in cases if not left_out & {*case.name.split("-")})


def test_windows_in_several_spans_keep_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_positions, "SPAN", 0)  # two windows each
    for case in attention.self_attention_cases(window.Settings(window=2), NO_POSITIONS | made("positions")):
        if not case.name.startswith(("the_", "a_long_row", "training")):
            case.run()


def test_windows_without_the_own_token_keep_the_contract_and_have_no_weight_on_it() -> None:
    settings = window.Settings(window=3, attends_self=False)
    for case in attention.self_attention_cases(settings, NO_POSITIONS):
        case.run()
    tiny = TinyMixer(settings)
    for causal in (False, True):
        weights = tiny.mixer.explicit(tiny.x, tiny.x, Visibility(causal, TokenPositions(L), TokenPositions(L))).weights
        assert not weights.diagonal(dim1=-2, dim2=-1).any()
        assert (weights[:, :, 1:].sum(-1) > 0.99).all()
    assert tiny.mixer.fast_decoding() is None


def test_windows_without_projections_attend_with_the_heads_parts_of_x() -> None:
    """Also with a state; there are no parameters, and the fast decoder is not used."""
    dims, size = AttentionDims(d_model=12, d_memory=12, n_heads=3, n_kv_heads=3, d_k=4, d_v=4), 3
    tiny = TinyMixer(window.Settings(window=size, projections=False, scale=0.7), dims=dims)
    index = torch.arange(L)
    mask = ((index[:, None] - index).abs() <= size) & (index <= index[:, None])
    parts = []
    for part in tiny.x.split(4, dim=2):
        scores = 0.7 * torch.einsum("bld,bmd->blm", part, part)
        parts.append(
            torch.einsum("blm,bmd->bld", (scores.exp() * mask) / (scores.exp() * mask).sum(-1, keepdim=True), part)
        )
    expected = torch.cat(parts, dim=2)
    torch.testing.assert_close(
        tiny.mix(tiny.x, Visibility(True, TokenPositions(L), TokenPositions(L))), expected, **EXACT
    )
    torch.testing.assert_close(
        run_in_blocks(tiny.mixer, tiny.x, TokenPositions(L), [4, 1, 6], trim=True)[0], expected, **EXACT
    )
    assert list(tiny.mixer.parameters()) == []
    assert not any(isinstance(part, ResidualLinear) for part in tiny.mixer.modules())
    assert tiny.mixer.fast_decoding() is None


def test_windows_without_projections_fit_the_default_sizes_alone() -> None:
    sizes = {"d_model": 12, "n_heads": 3, "n_layers": 1, "attention": window.Settings(projections=False)}
    assert settings_of("models", "decoder")(**sizes)
    for other in ({"n_kv_heads": 1}, {"d_k": 6}, {"d_v": 6}):
        with pytest.raises(ValueError, match="leave n_kv_heads, d_k and d_v to their defaults"):
            settings_of("models", "decoder")(**sizes, **other)


@pytest.mark.parametrize("kind", ["softmax", "window"])
def test_positions_of_other_people_attach_to_our_mixers(kind: str) -> None:
    cases = list(attention.self_attention_cases(mixer_settings(kind), made("positions")))
    assert len(cases) > 20
    for case in cases:
        case.run()


@pytest.mark.parametrize("word", ["others", "trailing"])
def test_a_mixer_made_of_headed_is_not_taken_for_softmax_by_the_fast_decoder(word: str) -> None:
    mixer = made("attention")[word].build(DIMS, LayerSpec(0, 1))
    assert mixer.fast_decoding() is None
    assert mixer_settings("softmax").build(DIMS, LayerSpec(0, 1)).fast_decoding() is not None


STREAMS = [
    (window.Settings(window=3), 3),
    (window.Settings(window=3, memory_length=7), 3),
    (window.Settings(window=7, memory_length=4), 4),
    (settings_of("attention", "softmax")(memory_length=6), 6),
    (settings_of("attention", "softmax")(memory_length=6, memory_cache="inputs"), 6),
]


@pytest.mark.parametrize(("settings", "n_kept"), STREAMS, ids=str)
def test_a_stream_keeps_as_many_tokens_as_its_bound(settings: MixerSettings, n_kept: int) -> None:
    """In training and in evaluation, of four rows of five tokens; a longer memory may be set in evaluation."""
    assert "streaming" in settings.supports
    assert settings.memory_bound == n_kept
    for training in (False, True):
        mixer, x = TinyMixer(settings).mixer.train(training), seeded(B, 20, DIMS.d_model)
        state: states.State | None = mixer.start(B)
        for first in range(0, 20, 5):
            positions, row = TokenPositions(5, first), x[:, first : first + 5]
            state = carry(mixer, mixer(row, row, Visibility(True, positions, positions), state).state)
            n_tokens = token_positions_of(state).length
            assert n_tokens == min(first + 5, n_kept)
    mixer = TinyMixer(settings).mixer
    assert mixer.memory_length == (settings.memory_length or None)
    mixer.memory_length = mixer.memory_length and 11
    _, state = run_in_blocks(mixer, x, TokenPositions(20), [20])
    reach = settings.window if isinstance(settings, window.Settings) else 20
    assert token_positions_of(carry(mixer, state)).length == min(11 if settings.memory_length else n_kept, reach)


def test_a_state_measures_as_many_bytes_as_its_tensors_hold() -> None:
    state: states.State = {
        "a": torch.zeros(3, 5, dtype=torch.float64),
        "b": {"c": torch.zeros(7, dtype=torch.bfloat16), "d": {}},
    }
    assert states.nbytes(state) == 3 * 5 * 8 + 7 * 2
    assert states.nbytes(None) == 0
    assert states.batch_size({"seen": 5, "b": {"start": 0, "c": torch.zeros(7, 2)}}) == 7


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("position", ["none", "alibi"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("kind", "given"), [("softmax", {}), ("window", {"window": 3}), ("window", {"window": 8})], ids=str
)
def test_attention_weights_are_dropped_in_training_alone(
    kind: str,
    given: dict[str, int],
    causal: bool,
    position: str,
    packed: bool,
    blocks: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values that are rows of the identity give the weights themselves; `blocks`: where a mask is too large to be made
    whole.
    """
    if blocks:
        monkeypatch.setattr(attention_kernels, "MASK_ELEMENTS", 70)
    settings, width = settings_of("attention", kind)(**given, dropout_rate=0.5), replace(DIMS, d_v=L)
    biasing = settings_of("positions", position)().build(DIMS.d_model, DIMS.n_heads, DIMS.d_k, 64)  # type: ignore[attr-defined]
    mixer = settings.build(width, LayerSpec(0, 1, "self", biasing.double()))  # type: ignore[attr-defined, arg-type]
    q, k = seeded(B, 4, L, 6), seeded(B, 2, L, 6, seed=2)
    v, view = (
        torch.eye(L).double().expand(B, 2, L, L),
        mixer.restrict(own_view(causal, positions_of_layout("packed" if packed else "plain"))),
    )
    torch.manual_seed(0)
    whole, again = mixer.eval().attend(q, k, v, view), mixer.attend(q, k, v, view)
    some = mixer.train().attend(q, k, v, view)
    kept = some != 0
    assert torch.equal(again, whole)
    assert 0.3 < kept.sum() / (whole != 0).sum() < 0.7
    torch.testing.assert_close(some, torch.where(kept, 2 * whole, 0.0), **EXACT)
