"""The same numbers as independent implementations: torch's own attention, a brute-force formula, and Hugging Face's
GPT-2 and BERT.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from families import filled
from torch import Tensor, nn
from toys import DIMS, own_view, seeded, tiny_mixer

from mini_tf.nn.mixer import AttentionDims, ExplicitAttention, LayerSpec
from mini_tf.nn.model import Model
from mini_tf.nn.positional_encoding import sinusoids
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.nn.tokens import Tokens
from mini_tf.positions.alibi import slopes
from mini_tf.recipe.kinds import listing, settings_of

EXACT = {"rtol": 0, "atol": 1e-10}


@pytest.mark.parametrize("causal", [False, True])
def test_softmax_equals_torch_multihead_attention(causal: bool) -> None:
    mixer = tiny_mixer("softmax", width=AttentionDims(12, 12, 3, 3, 4, 4))
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).double()
    theirs.in_proj_weight.data, theirs.in_proj_bias.data = mixer.qkv.weight.data, mixer.qkv.bias.data  # type: ignore[union-attr]
    theirs.out_proj.load_state_dict(mixer.out.state_dict())  # type: ignore[operator]
    x = seeded(2, 7, 12)
    mask = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64) if causal else None
    expected, weights = theirs(x, x, x, attn_mask=mask, average_attn_weights=False)
    torch.testing.assert_close(mixer(x, x, own_view(causal, TokenPositions(7))).y, expected, **EXACT)
    torch.testing.assert_close(mixer.explicit(x, x, own_view(causal, TokenPositions(7))).weights, weights, **EXACT)


@pytest.mark.parametrize("causal", [False, True])
def test_softmax_equals_the_papers_formula_with_free_d_k_and_d_v(causal: bool) -> None:
    width = AttentionDims(d_model=10, d_memory=10, n_heads=3, n_kv_heads=3, d_k=4, d_v=7)
    mixer, x = tiny_mixer("softmax", width=width), seeded(2, 5, 10)
    weight, bias = mixer.qkv.weight.detach().numpy(), mixer.qkv.bias.detach().numpy()  # type: ignore[union-attr]
    out, shift = mixer.out.weight.detach().numpy(), mixer.out.bias.detach().numpy()  # type: ignore[union-attr]
    expected = np.zeros((2, 5, 10))
    for b in range(2):
        given = x[b].numpy()
        for h in range(3):
            q = given @ weight[h * 4 : h * 4 + 4].T + bias[h * 4 : h * 4 + 4]
            k = given @ weight[12 + h * 4 : 16 + h * 4].T + bias[12 + h * 4 : 16 + h * 4]
            v = given @ weight[24 + h * 7 : 31 + h * 7].T + bias[24 + h * 7 : 31 + h * 7]
            for i in range(5):
                seen = range(i + 1 if causal else 5)
                raw = [math.exp(sum(q[i] * k[j]) / math.sqrt(4)) for j in seen]
                read = sum(r / sum(raw) * v[j] for r, j in zip(raw, seen, strict=True))
                expected[b, i] += out[:, h * 7 : h * 7 + 7] @ read
    expected += shift
    torch.testing.assert_close(mixer(x, x, own_view(causal, TokenPositions(5))).y, torch.from_numpy(expected), **EXACT)


@pytest.mark.parametrize(
    "given",
    [{}, {"scale": "none"}, {"scale": 0.3}, {"qk_norm": True}, {"qk_norm": True, "scale": 2.0}, {"qk_norm": "weight"}],
    ids=str,
)
@pytest.mark.parametrize(("kind", "side"), [("softmax", "self"), ("softmax", "cross"), ("window", "self")])
def test_scores_are_scaled_and_queries_and_keys_normalised_as_the_settings_say(
    kind: str, side: Any, given: dict[str, Any]
) -> None:
    """Two heads share a key; the window is 2 tokens, in slabs."""
    torch.manual_seed(0)
    windowed = {"window": 2} if kind == "window" else {}
    settings = settings_of("attention", kind)(**given, **windowed)
    mixer = settings.build(DIMS, LayerSpec(0, 1, side)).double().eval()  # type: ignore[attr-defined]
    x = seeded(2, 9, 12)
    source = seeded(2, 5, 12, seed=2) if side == "cross" else x
    if side == "cross":
        q_weight, (k_weight, v_weight) = mixer.q.weight, mixer.kv.weight.split([2 * 6, 2 * 4])
    else:
        q_weight, k_weight, v_weight = mixer.qkv.weight.split([4 * 6, 2 * 6, 2 * 4])
    q, k, v = (
        (t @ w.T).unflatten(-1, (n, -1)) for t, w, n in ((x, q_weight, 4), (source, k_weight, 2), (source, v_weight, 2))
    )
    if "qk_norm" in given:
        q, k = (t / t.square().mean(dim=-1, keepdim=True).sqrt() for t in (q, k))
    if given.get("qk_norm") == "weight":
        q, k = (t * norm.data.normal_() for t, norm in ((q, mixer.q_norm), (k, mixer.k_norm)))
    scale = {"none": 1.0, "rsqrt_dk": 6**-0.5}.get(settings.scale, settings.scale)  # type: ignore[attr-defined]
    distance = (torch.arange(9)[:, None] - torch.arange(source.shape[1])).abs()
    seen = distance <= 2 if kind == "window" else torch.ones_like(distance, dtype=torch.bool)
    read = []
    for head in range(4):
        scores = q[:, :, head] @ k[:, :, head // 2].transpose(1, 2) * scale
        read.append(scores.masked_fill(~seen, -torch.inf).softmax(dim=-1) @ v[:, :, head // 2])
    expected = torch.cat(read, dim=-1) @ mixer.out.weight.T
    view = Visibility(False, TokenPositions(9), TokenPositions(source.shape[1]))
    torch.testing.assert_close(mixer(x, source, view).y, expected, **EXACT)


def test_dot_products_of_unit_vectors_have_variance_d_k() -> None:
    """The footnote of section 3.2.1: hence the scale 1/sqrt(d_k)."""
    for d_k in (4, 64, 512):
        scores = seeded(400, d_k) @ seeded(500, d_k, seed=2).T
        assert scores.var().item() == pytest.approx(d_k, rel=0.1)
        width = AttentionDims(8, 8, 1, 1, d_k, d_k)
        assert tiny_mixer("softmax", width=width).scale == pytest.approx(1 / math.sqrt(d_k))


def test_a_window_that_covers_the_text_is_softmax_attention() -> None:
    softmax, x = tiny_mixer("softmax"), seeded(2, 9, 12)
    window = (
        settings_of("attention", "window")(window=8).build(softmax.dims, LayerSpec(0, 1, bias=True)).double().eval()
    )  # type: ignore[attr-defined]
    window.load_state_dict(softmax.state_dict())
    for causal in (False, True):
        torch.testing.assert_close(
            window(x, x, own_view(causal, TokenPositions(9))).y,
            softmax(x, x, own_view(causal, TokenPositions(9))).y,
            **EXACT,
        )


def test_sinusoids_follow_the_paper() -> None:
    d, base = 10, 10000.0
    table = sinusoids(torch.arange(50), d, base)
    for p in (0, 1, 7, 49):
        for i in range(d // 2):
            assert table[p, 2 * i].item() == pytest.approx(math.sin(p / base ** (2 * i / d)), abs=1e-12)
            assert table[p, 2 * i + 1].item() == pytest.approx(math.cos(p / base ** (2 * i / d)), abs=1e-12)
    # The product of two positions depends on their distance alone.
    products = table @ table.T
    torch.testing.assert_close(products[:-3, 3:].diagonal(), products[0, 3].expand(47), rtol=0, atol=1e-12)


def test_rotary_scores_depend_on_distance_alone() -> None:
    rotary = settings_of("positions", "rotary")().build(8, 2, 4, 16).double()  # type: ignore[attr-defined]
    q, k = seeded(1, 1, 2, 4), seeded(1, 1, 2, 4, seed=2)
    scores = [
        (rotary.rotate(q, TokenPositions(1, start)) * rotary.rotate(k, TokenPositions(1, start - 5))).sum(-1)
        for start in (5, 9, 300)
    ]
    torch.testing.assert_close(scores[0], scores[1], **EXACT)
    torch.testing.assert_close(scores[0], scores[2], **EXACT)


@pytest.mark.parametrize("n_heads", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20])
def test_alibi_slopes_are_those_of_the_paper(n_heads: int) -> None:
    """2^(-8i/n) for a power of two; where there are more heads, those that stand between these, of twice as many, come
    after them.
    """
    whole = max(power for power in (1, 2, 4, 8, 16) if power <= n_heads)
    own = [2.0 ** (-8 * i / whole) for i in range(1, whole + 1)]
    between = [2.0 ** (-8 * (i - 0.5) / whole) for i in range(1, whole + 1)]
    assert slopes(n_heads) == pytest.approx([*own, *between][:n_heads])


@pytest.mark.parametrize("causal", [False, True])
def test_with_alibi_weights_fall_by_the_slope_a_token_to_both_sides(causal: bool) -> None:
    """Of a mixer that makes all scores 0."""
    mixer, x = tiny_mixer("softmax", position="alibi"), seeded(1, 6, 12)
    nn.init.zeros_(mixer.qkv.weight)  # type: ignore[union-attr, arg-type]
    nn.init.zeros_(mixer.qkv.bias)  # type: ignore[union-attr, arg-type]
    weights = mixer.explicit(x, x, own_view(causal, TokenPositions(6))).weights[0]
    for head, slope in enumerate([2**-2, 2**-4, 2**-6, 2**-8]):
        for query in range(6):
            seen = range(query + 1 if causal else 6)
            raw = [math.exp(-slope * abs(query - key)) for key in seen]
            assert weights[head, query, : len(seen)].tolist() == pytest.approx([one / sum(raw) for one in raw])


def test_learned_positions_refuse_what_stands_past_their_end() -> None:
    from mini_tf.system.errors import DataFault

    learned = settings_of("positions", "learned")(length=4).build(6, 1, 6, 99)  # type: ignore[attr-defined]
    for positions in (TokenPositions(4), TokenPositions(1, 3), TokenPositions(1, 0, None, torch.tensor([[3]]))):
        embedded = learned.embed(torch.ones(1, positions.length, 6), positions)
        torch.testing.assert_close(embedded[0, -1], 1 + learned.table.weight[3])
    for positions in (
        TokenPositions(5),
        TokenPositions(1, 4),
        TokenPositions(2, 3),
        TokenPositions(1, 0, None, torch.tensor([[4]])),
    ):
        with pytest.raises(DataFault, match="5 tokens is longer than the 4 learned positions"):
            learned.embed(torch.zeros(1, positions.length, 6), positions)
    with pytest.raises(DataFault, match="6 tokens is longer than the 4 learned positions"):
        learned.embed(torch.zeros(1, 2, 6), TokenPositions(2, 0, None, torch.tensor([[0, 5]])))


@pytest.mark.parametrize("word", listing("positions"))
def test_a_file_holds_of_positions_what_is_learned_alone(word: str) -> None:
    position = settings_of("positions", word)().build(8, 2, 4, 16)  # type: ignore[attr-defined]
    assert set(position.state_dict()) == {name for name, _ in position.named_parameters()}


@pytest.mark.parametrize("n_bands", [1, 2, 5])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_fourier_features_follow_the_paper(n_bands: int, length: int) -> None:
    """[p, sin(pi f_k p), cos(pi f_k p)], p from -1 to 1; frequencies evenly from 1 to half of the length."""
    fourier = settings_of("positions", "fourier")(n_bands=n_bands, length=length).build(6, 1, 6, 99)  # type: ignore[attr-defined]
    found = fourier.features(torch.tensor([[0, 1, length - 1, 2 * length]]))[0]
    top = max(1.0, length / 2)
    frequencies = [1 + (top - 1) * k / max(1, n_bands - 1) for k in range(n_bands)]
    for row, position in zip(found.tolist(), (0, 1, length - 1, 2 * length), strict=True):
        p = -1 + 2 * position / max(1, length - 1)
        angles = [math.pi * f * p for f in frequencies]
        assert row == pytest.approx([p, *map(math.sin, angles), *map(math.cos, angles)], abs=1e-12)
    x = seeded(2, 3, 6)
    added = fourier.double().embed(x, TokenPositions(3, 1)) - x
    torch.testing.assert_close(
        added, (fourier.features(torch.arange(1, 4)) @ fourier.map.weight.T).expand(2, -1, -1), **EXACT
    )


def test_concatenated_positions_are_added_ones_with_a_matrix_in_blocks() -> None:
    build = {"d_model": 6, "n_heads": 1, "d_k": 6, "context": 8}
    concat = settings_of("positions", "fourier")(n_bands=3, combine="concat").build(**build).double()  # type: ignore[attr-defined]
    x, positions = seeded(2, 8, 6), TokenPositions(8)
    features = concat.features(torch.arange(8)[None])
    tokens, own = concat.map.weight.split([6, 7], dim=1)
    torch.testing.assert_close(concat.embed(x, positions), x @ tokens.T + features @ own.T, **EXACT)
    assert features[0, 0, 0] == -1
    assert features[0, -1, 0] == 1


# Hugging Face, on copied weights


def maps_of(model: Model, ids: Tensor) -> list[Tensor]:
    """The weights of every layer, (B, H, L, M), from `explicit` called beside each forward."""
    shown: list[ExplicitAttention] = []
    hooks = [
        mixer.register_forward_hook(lambda m, given, _out: shown.append(m.explicit(*given[:3])))
        for mixer in model.mixers()
    ]
    with torch.no_grad():
        model(Tokens(ids))
    for hook in hooks:
        hook.remove()
    return [explicit.weights for explicit in shown]


def test_a_decoder_reproduces_hugging_faces_gpt2() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=50,
        n_positions=16,
        n_embd=24,
        n_layer=3,
        n_head=4,
        attn_implementation="eager",
        initializer_range=0.2,
    )
    theirs = GPT2LMHeadModel(config).eval()
    settings = settings_of("models", "decoder")(
        d_model=24,
        n_layers=3,
        n_heads=4,
        bias=True,
        activation="gelu_tanh",
        positions=settings_of("positions", "learned")(),
    )
    ours = filled(settings.build(50, 16), "gpt2", theirs.state_dict())  # type: ignore[attr-defined]
    ids = torch.randint(50, (2, 16))
    with torch.no_grad():
        expected = theirs(ids, output_attentions=True)
        torch.testing.assert_close(ours.logits(ours(Tokens(ids)).y), expected.logits, rtol=0, atol=1e-5)
    for shown, attention in zip(maps_of(ours, ids), expected.attentions, strict=True):
        torch.testing.assert_close(shown, attention, rtol=0, atol=1e-5)


def test_an_encoder_reproduces_hugging_faces_bert() -> None:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40,
        max_position_embeddings=16,
        attn_implementation="eager", initializer_range=0.2,
    )  # fmt: skip
    theirs = BertForMaskedLM(config).eval()
    settings = settings_of("models", "encoder")(
        d_model=24, n_layers=3, n_heads=4, d_ff=40, bias=True, norm_place="post", norm_eps=1e-12, head="bert",
        n_types=2, embed_norm=True,
        positions=settings_of("positions", "learned")(),
    )  # fmt: skip
    ours = filled(settings.build(50, 16), "bert", theirs.state_dict())  # type: ignore[attr-defined]
    ids, types = torch.randint(50, (2, 16)), torch.randint(2, (2, 16))
    segments = torch.ones(2, 16, dtype=torch.long)
    segments[1, 12:] = 0
    with torch.no_grad():
        expected = theirs(ids, token_type_ids=types, attention_mask=segments, output_attentions=True)
        got = ours.logits(ours(Tokens(ids, TokenPositions.packed(segments), types)).y)
        torch.testing.assert_close(got[segments == 1], expected.logits[segments == 1], rtol=0, atol=1e-5)
        plain = theirs(ids, output_attentions=True)
    for shown, attention in zip(maps_of(ours, ids), plain.attentions, strict=True):
        torch.testing.assert_close(shown, attention, rtol=0, atol=1e-5)
