"""The contract of mixers, run on every kind and on strangers.

A new file in mini_tf/attention is tested here without a line written for it.
"""

from dataclasses import replace

import pytest
import torch
from strangers import made
from toys import mixer_kinds, mixer_settings, own_view, seeded

from mini_tf.attention import window
from mini_tf.nn import state as states
from mini_tf.nn import token_positions
from mini_tf.nn.layers import attend
from mini_tf.nn.mixer import LayerSpec, MixerSettings
from mini_tf.recipe.kinds import settings_of
from mini_tf.testing import Case, attention
from mini_tf.testing.tiny_mixers import DIMS, EXACT, B, L, positions_of_layout


def every_mixer() -> dict[str, MixerSettings]:
    return {kind: mixer_settings(kind) for kind in mixer_kinds()} | made("attention")


CASES = [pytest.param(case, id=f"{word}-{case}") for word, settings in every_mixer().items() for case in attention.cases(settings)]


@pytest.mark.parametrize("case", CASES)
def test_a_mixer_keeps_its_contract(case: Case) -> None:
    case.run()


def test_windows_in_several_spans_keep_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_positions, "SPAN", 0)  # two windows each
    for case in attention.cases(window.Settings(window=2)):
        if not case.name.startswith("the_formula"):
            case.run()


@pytest.mark.parametrize("kind", ["softmax", "window"])
def test_positions_of_other_people_attach_to_our_mixers(kind: str) -> None:
    cases = list(attention.self_attention_cases(mixer_settings(kind), made("positions")))
    assert len(cases) > 20
    for case in cases:
        case.run()


@pytest.mark.parametrize("word", ["others", "sharp", "trailing", "spans"])
def test_a_mixer_made_of_headed_is_not_taken_for_softmax_by_the_fast_decoder(word: str) -> None:
    mixer = made("attention")[word].build(DIMS, LayerSpec(0, 1))
    assert mixer.fast_decoding() is None
    assert mixer_settings("softmax").build(DIMS, LayerSpec(0, 1)).fast_decoding() is not None


def test_a_state_measures_as_many_bytes_as_its_tensors_hold() -> None:
    state: states.State = {"a": torch.zeros(3, 5, dtype=torch.float64), "b": {"c": torch.zeros(7, dtype=torch.bfloat16), "d": {}}}
    assert states.nbytes(state) == 3 * 5 * 8 + 7 * 2
    assert states.nbytes(None) == 0


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("position", ["none", "alibi"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("kind", "given"), [("softmax", {}), ("window", {"window": 3}), ("window", {"window": 8})], ids=str)
def test_attention_weights_are_dropped_in_training_alone(
    kind: str, given: dict[str, int], causal: bool, position: str, packed: bool, blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that are rows of the identity give the weights themselves; `blocks`: where a mask is too large to be made
    whole.
    """
    if blocks:
        monkeypatch.setattr(attend, "MASK_ELEMENTS", 70)
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
