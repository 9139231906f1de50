"""Attention without parameters: its formula, softmax attention with identities for projections, and its view."""

from pathlib import Path

import pytest
import torch
from commands import minitf
from test_cli_inspect_views import refused, result_of, shown
from test_run_identity import SMALL, run_id
from toys import own_view, seeded, tiny_mixer

from mini_tf.nn.mixer import AttentionDims, LayerSpec, Mixer
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.recipe import Recipe
from mini_tf.testing.tiny.mixers import DIMS, EXACT


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", ["none", "rsqrt_d", "cosine"])
def test_simple_attention_compares_vectors_as_its_scale_says(scale: str, causal: bool) -> None:
    mixer = settings_of("attention", "simple")(scale=scale).build(DIMS, LayerSpec(0, 1)).eval()  # type: ignore[attr-defined]
    x, view = seeded(2, 5, 12), own_view(causal, TokenPositions(5))
    length = x.square().sum(dim=-1).sqrt()
    divided = {
        "none": torch.ones(1),
        "rsqrt_d": torch.tensor(12.0).double().sqrt(),
        "cosine": length[:, :, None] * length[:, None],
    }[scale]
    scores = x @ x.transpose(1, 2) / divided
    scores = scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf) if causal else scores
    torch.testing.assert_close(mixer(x, x, view).y, scores.softmax(dim=-1) @ x, **EXACT)
    torch.testing.assert_close(mixer.explicit(x, x, view).weights[:, 0], scores.softmax(dim=-1), **EXACT)


def test_the_worked_example_of_softmax() -> None:
    """softmax([1, 2, 3, 4]), as weights of a mixer whose scores are those numbers."""
    mixer = tiny_mixer("simple", width=AttentionDims(4, 4, 1, 1, 4, 4), attention="cross")
    query, memory = torch.tensor([[[1.0, 0, 0, 0]]]).double(), torch.eye(4).double()[None].clone()
    memory[0, :, 0] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    shown = mixer.explicit(query, memory, Visibility(False, TokenPositions(1), TokenPositions(4)))
    assert shown.weights.flatten().tolist() == pytest.approx([0.0321, 0.0871, 0.2369, 0.6439], abs=5e-5)


def test_simple_attention_is_softmax_attention_with_identities_for_projections() -> None:
    width = AttentionDims(6, 6, 1, 1, 6, 6)
    simple = tiny_mixer("simple", width=width)
    place = LayerSpec(0, 1, "self", None, bias=False)
    full = settings_of("attention", "softmax")(scale="none").build(width, place).double().eval()  # type: ignore[attr-defined]
    assert isinstance(full, Mixer)
    with torch.no_grad():
        full.qkv.weight.copy_(torch.eye(6).repeat(3, 1))  # type: ignore[union-attr, operator]
        full.out.weight.copy_(torch.eye(6))  # type: ignore[union-attr, operator]
    x = seeded(2, 5, 6)
    view = own_view(False, TokenPositions(5))
    torch.testing.assert_close(simple(x, x, view).y, full(x, x, view).y, **EXACT)
    # One token alone reads itself; an orthogonal change of axes commutes with the mixer.
    torch.testing.assert_close(simple(x[:, :1], x[:, :1], own_view(False, TokenPositions(1))).y, x[:, :1], **EXACT)
    turn = torch.linalg.qr(seeded(6, 6)).Q
    torch.testing.assert_close(simple(x @ turn, x @ turn, view).y, simple(x, x, view).y @ turn, **EXACT)


def test_simple_walks_through_the_words(tmp_path: Path) -> None:
    text = shown("simple", "I love bears")
    result = result_of("simple", "I love bears")
    assert text == shown("simple")
    assert "bears moved towards the other words" in text
    assert f"{result['weights'][2][0]:.3f}" in text
    assert result["drawn"] == result["notes"] == []
    assert result["after"][2] > result["before"][2]


def test_simple_takes_any_words_but_not_many(tmp_path: Path) -> None:
    text = "\x1b[31m [bold] 漢字 👩\u200d🚀 bears"
    result = result_of("simple", text)
    assert result["words"] == text.split()
    assert result["drawn"] == text.split()[:-1]
    assert "[bold]" in shown("simple", text)
    shown("simple", " ".join("abcdefghijkl"))
    for words in ("", " ", "a " * 13):
        assert "words, but must have 1 to 12" in refused(2, "simple", words)


def test_of_one_word_there_is_nothing_to_compare() -> None:
    alone = result_of("simple", "bears")
    assert (alone["before"], alone["after"]) == ([None], [None])
    assert "nan" not in shown("simple", "bears")


def test_words_that_look_like_markup_stay_words() -> None:
    words = ("[link=http://x]", "[/nope]", ":smile:", "[bold]")
    printed = minitf("inspect", "simple", " ".join(words)).stdout
    assert all(word in printed for word in words)
    assert "the text is not UTF-8" in refused(2, "simple", "a\udcff")


def test_a_given_value_that_is_the_default_of_another_kind_is_kept_apart() -> None:
    """`simple` leaves scores unscaled by default, `softmax` does not: the same word beside another kind."""
    scales = [("simple", "none"), ("softmax", "none"), ("simple", "rsqrt_d"), ("softmax", "rsqrt_dk")]
    models = [
        {"kind": "decoder", "positions": "none", "attention": {"kind": kind, "scale": scale}} for kind, scale in scales
    ]
    ids = {run_id(Recipe.model_validate(SMALL | {"model": model})) for model in models}
    assert len(ids) == len(scales)
