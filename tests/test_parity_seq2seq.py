"""The same numbers as Hugging Face's encoder-decoders on copied weights: BART, mBART, T5, and Marian, the Transformer
of 2017.

Each model is one recipe of the block; logits and every attention map agree to 1e-5, also with padded sources and
targets. What copying has to bring with it, and what the block cannot express:

    BART, mBART   the first two rows of their position tables are never read and are left out; final_logits_bias, which
    is zero in
                  all released models, has no counterpart (only the bert head has a bias); of their layerdrop nothing is
                  left
    T5            a tied decoder scales its output by d_model^-0.5: the last norm's weight is multiplied by it; the gate
    of
                  v1.1 is gelu, ours (swiglu) silu, so the block is T5 v1.1 but for this function
    Marian        its sinusoids stand as all sines, then all cosines, ours alternate: one order of the residual stream's
    axes for
                  the other; released models have swish without a gate, which the block has not; here relu, as in the
                  paper
    all           the encoder's d_k and n_kv_heads are the decoder's; both have one activation and one norm
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from mini_tf.inspection.capture import capture
from mini_tf.models.encoder_decoder import EncoderDecoder
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.positions.t5 import buckets
from mini_tf.recipe.kinds import settings_of

V, CONTEXT = 50, 24
D = 24
CLOSE = {"rtol": 0, "atol": 1e-5}
TINY = {
    "vocab_size": V, "d_model": D, "attn_implementation": "eager", "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
    "decoder_start_token_id": 2,
}  # fmt: skip
SIDES = {
    "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 3, "decoder_attention_heads": 4, "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 56, "max_position_embeddings": CONTEXT, "init_std": 0.2, "forced_eos_token_id": None,
}  # fmt: skip


def built(**settings: Any) -> EncoderDecoder:
    """Our model of a recipe's words, with nothing of its fresh weights left."""
    model = settings_of("models", "encoder_decoder").model_validate(settings).build(V, CONTEXT)  # type: ignore[attr-defined]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    return model.eval()  # type: ignore[no-any-return]


def copied(ours: EncoderDecoder, theirs: dict[str, Tensor], names: dict[str, str], layers: dict[str, str], depths: tuple[int, int]) -> None:
    """Fill `ours`. names: ours to theirs, commas join rows. layers: the same within a layer; {side} and {i} are filled
    in, and an encoder has no cross mixers.
    """
    given = dict(names)
    for ours_side, side, n_layers in (("encoder", "encoder", depths[0]), ("stack", "decoder", depths[1])):
        for a, b in layers.items():
            if side == "decoder" or not a.startswith("cross"):
                given |= {f"{ours_side}.layers.{i}.{a}": b.replace("{side}", side).replace("{i}", str(i)) for i in range(n_layers)}
    ours.load_weights({a: torch.cat([theirs[name] for name in b.split(",")]) for a, b in given.items()})
    assert set(ours.weights()) == set(given)
    assert not any(parameter.isnan().any() for parameter in ours.parameters())


def jolted(model: torch.nn.Module) -> None:
    """Norms and shifts start as 1 and 0, with which a mistaken one would not show."""
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn(parameter.shape, generator=draw)


def parts(*pairs: tuple[str, str]) -> dict[str, str]:
    """The names of the weights and shifts of each (ours, theirs)."""
    return {f"{a}.{kind}": ",".join(f"{name}.{kind}" for name in b.split(",")) for a, b in pairs for kind in ("weight", "bias")}


def asked() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sources and targets of three pairs, and where they are tokens (1) and padding (0), to the right."""
    draw = torch.Generator().manual_seed(3)
    source, target = (torch.randint(3, V, (3, n), generator=draw) for n in (11, 9))
    visible = torch.stack([(torch.arange(11) < n).long() for n in (11, 7, 1)])
    return source, target, visible, torch.stack([(torch.arange(9) < n).long() for n in (9, 4, 6)])


def assert_same(ours: EncoderDecoder, theirs: Any) -> None:
    """Scores and all attention maps: plain rows, padded sources, and padded sources and targets."""
    source, target, read, written = asked()
    everything = torch.ones_like(read), torch.ones_like(written)
    for seen, here in (everything, (read, everything[1]), (read, written)):
        plain = bool(seen.all())
        inputs = Tokens(target) if bool(here.all()) else Tokens(target, TokenPositions.packed(here))
        shown = capture(ours, inputs, Tokens(source) if plain else Tokens(source, TokenPositions.packed(seen)))
        with torch.no_grad():
            expected = theirs(
                source, attention_mask=seen, decoder_input_ids=target, decoder_attention_mask=here, output_attentions=True, use_cache=False
            )
            y = ours(inputs, Tokens(source) if plain else Tokens(source, TokenPositions.packed(seen))).y
        torch.testing.assert_close(ours.logits(y)[here == 1], expected.logits[here == 1], **CLOSE)
        groups = {
            "encoder.self": (expected.encoder_attentions, seen),
            "decoder.self": (expected.decoder_attentions, here),
            "cross": (expected.cross_attentions, here),
        }
        assert {reading.kind for reading in shown.attention} == set(groups)
        for kind, (maps, real) in groups.items():
            found = [reading.weights for reading in shown.attention if reading.kind == kind]
            for mine, map_ in zip(found, maps, strict=True):
                # What a pad reads is nobody's business: ours reads nothing.
                torch.testing.assert_close(mine.movedim(2, 1)[real == 1], map_.movedim(2, 1)[real == 1], **CLOSE)
        assert shown.difference < 1e-5


BART_LAYERS = parts(
    ("own.part.qkv", ",".join(f"model.{{side}}.layers.{{i}}.self_attn.{x}_proj" for x in "qkv")),
    ("own.part.out", "model.{side}.layers.{i}.self_attn.out_proj"),
    ("own.norm", "model.{side}.layers.{i}.self_attn_layer_norm"),
    ("cross.part.q", "model.{side}.layers.{i}.encoder_attn.q_proj"),
    ("cross.part.kv", ",".join(f"model.{{side}}.layers.{{i}}.encoder_attn.{x}_proj" for x in "kv")),
    ("cross.part.out", "model.{side}.layers.{i}.encoder_attn.out_proj"),
    ("cross.norm", "model.{side}.layers.{i}.encoder_attn_layer_norm"),
    ("feed_forward.part.up", "model.{side}.layers.{i}.fc1"),
    ("feed_forward.part.down", "model.{side}.layers.{i}.fc2"),
    ("feed_forward.norm", "model.{side}.layers.{i}.final_layer_norm"),
)
BART_NAMES = {
    "embedding.tokens.weight": "model.shared.weight",
    "embedding.position.table.weight": "model.decoder.embed_positions.weight",
    "source_embedding.position.table.weight": "model.encoder.embed_positions.weight",
    **parts(("embedding.norm", "model.decoder.layernorm_embedding"), ("source_embedding.norm", "model.encoder.layernorm_embedding")),
}
BART_SIDES = {
    "d_model": D, "n_layers": 2, "n_heads": 4, "d_ff": 56, "encoder": {"n_layers": 3, "n_heads": 3, "d_ff": 40}, "bias": True,
}  # fmt: skip


def bart_weights(theirs: torch.nn.Module) -> dict[str, Tensor]:
    """Place 0 is their row 2."""
    return {name: tensor[2:] if "embed_positions" in name else tensor for name, tensor in theirs.state_dict().items()}


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("family", ["bart", "mbart"])
def test_bart_post_norm_and_mbart_pre_norm_are_the_block_with_learned_positions(family: str, scaled: bool) -> None:
    from transformers import BartConfig, BartForConditionalGeneration, MBartConfig, MBartForConditionalGeneration

    torch.manual_seed(0)
    pre = family == "mbart"
    config = (MBartConfig if pre else BartConfig)(**TINY, **SIDES, scale_embedding=scaled)
    theirs = (MBartForConditionalGeneration if pre else BartForConditionalGeneration)(config).eval()
    jolted(theirs)
    assert theirs.final_logits_bias.abs().sum() == 0
    ours = built(**BART_SIDES, norm_place="pre" if pre else "post", embed_norm=True, embed_scale=scaled, positions="learned")
    lasts = parts(("stack.norm", "model.decoder.layer_norm"), ("encoder.norm", "model.encoder.layer_norm")) if pre else {}
    copied(ours, bart_weights(theirs), BART_NAMES | lasts, BART_LAYERS, (3, 2))
    assert_same(ours, theirs)


def test_what_bart_reads_is_what_its_bare_model_reads() -> None:
    """BartModel, without a head: hidden states of both stacks."""
    from transformers import BartConfig, BartModel

    torch.manual_seed(1)
    theirs = BartModel(BartConfig(**TINY, **SIDES)).eval()
    jolted(theirs)
    ours = built(**BART_SIDES, norm_place="post", embed_norm=True, positions="learned")
    copied(ours, {f"model.{name}": tensor for name, tensor in bart_weights(theirs).items()}, BART_NAMES, BART_LAYERS, (3, 2))
    source, target, read, _ = asked()
    positions = TokenPositions.packed(read)
    with torch.no_grad():
        expected = theirs(source, attention_mask=read, decoder_input_ids=target)
        y = ours(Tokens(target), Tokens(source, positions)).y
        encoded = ours.encoder(ours.source_embedding(Tokens(source), positions), positions).y
    torch.testing.assert_close(y, expected.last_hidden_state, **CLOSE)
    torch.testing.assert_close(encoded[read == 1], expected.encoder_last_hidden_state[read == 1], **CLOSE)


@pytest.mark.parametrize("separate", [False, True])
def test_marian_is_the_transformer_of_2017(separate: bool) -> None:
    """Sinusoids, norms after the sum, relu, embeddings times sqrt(d_model): with one vocabulary or two."""
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    config = MarianConfig(**TINY, **SIDES, scale_embedding=True, activation_function="relu", share_encoder_decoder_embeddings=not separate)
    theirs = MarianMTModel(config).eval()
    jolted(theirs)
    ours = built(
        **BART_SIDES, norm_place="post", embed_scale=True, activation="relu", positions="sinusoidal", shared_embeddings=not separate
    )  # fmt: skip
    names = {"embedding.tokens.weight": "model.decoder.embed_tokens.weight"}
    names |= {"source_embedding.tokens.weight": "model.encoder.embed_tokens.weight"} if separate else {}
    copied(ours, theirs.state_dict(), names, BART_LAYERS, (3, 2))
    turn_axes(ours, torch.stack([torch.arange(D // 2), torch.arange(D // 2) + D // 2], dim=1).flatten())
    assert_same(ours, theirs)


def turn_axes(model: EncoderDecoder, order: Tensor) -> None:
    """The same model with the axes of its residual stream in another order: axis i is what axis order[i] was."""
    inner = ("qkv.bias", "q.bias", "kv.bias", "up.bias")
    with torch.no_grad():
        for name, tensor in model.weights().items():
            if not name.endswith(inner):
                written = tensor.dim() == 1 or name.endswith(("out.weight", "down.weight"))
                tensor.copy_(tensor.index_select(0 if written else 1, order))


T5_LAYERS = {
    "own.norm.weight": "{side}.block.{i}.layer.0.layer_norm.weight",
    "own.part.qkv.weight": ",".join(f"{{side}}.block.{{i}}.layer.0.SelfAttention.{x}.weight" for x in "qkv"),
    "own.part.out.weight": "{side}.block.{i}.layer.0.SelfAttention.o.weight",
    "cross.norm.weight": "{side}.block.{i}.layer.1.layer_norm.weight",
    "cross.part.q.weight": "{side}.block.{i}.layer.1.EncDecAttention.q.weight",
    "cross.part.kv.weight": ",".join(f"{{side}}.block.{{i}}.layer.1.EncDecAttention.{x}.weight" for x in "kv"),
    "cross.part.out.weight": "{side}.block.{i}.layer.1.EncDecAttention.o.weight",
    "feed_forward.norm.weight": "{side}.block.{i}.feed.layer_norm.weight",
    "feed_forward.part.up.weight": "{side}.block.{i}.feed.up.weight",
    "feed_forward.part.down.weight": "{side}.block.{i}.feed.DenseReluDense.wo.weight",
}
T5_NAMES = {
    "embedding.tokens.weight": "shared.weight",
    "embedding.position.table.weight": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    "source_embedding.position.table.weight": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    "stack.norm.weight": "decoder.final_layer_norm.weight",
    "encoder.norm.weight": "encoder.final_layer_norm.weight",
}


def t5_pair(gated: bool) -> tuple[EncoderDecoder, Any]:
    """Their T5 v1.0 (relu, tied), or one with a gate and a head of its own, and ours with its weights."""
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    more = {"feed_forward_proj": "gated-silu", "tie_word_embeddings": False} if gated else {"feed_forward_proj": "relu"}
    config = T5Config(
        **TINY, **more, d_kv=5, num_heads=4, d_ff=40, num_layers=3, num_decoder_layers=2, relative_attention_num_buckets=8,
        relative_attention_max_distance=10, initializer_factor=1.0,
    )  # fmt: skip
    theirs = T5ForConditionalGeneration(config).eval()
    if gated:  # this version ties even what it does not scale: a head of its own again
        theirs.lm_head.weight = torch.nn.Parameter(0.2 * torch.randn(V, D))
    jolted(theirs)
    for name, parameter in theirs.named_parameters():
        if "relative_attention_bias" in name:
            parameter.data.normal_()
    positions = {"kind": "t5", "n_buckets": 8, "max_distance": 10}
    ours = built(
        d_model=D, n_layers=2, n_heads=4, d_k=5, d_ff=40, norm="rms", norm_eps=1e-6, activation="swiglu" if gated else "relu",
        tied=not gated, attention={"kind": "softmax", "scale": "none"}, cross_attention={"kind": "softmax", "scale": "none"},
        positions=positions | {"bidirectional": False}, encoder={"n_layers": 3, "positions": positions},
    )  # fmt: skip
    copied(ours, *t5_weights(theirs.state_dict(), gated), (3, 2))
    return ours, theirs


def t5_weights(state: dict[str, Tensor], gated: bool) -> tuple[dict[str, Tensor], dict[str, str], dict[str, str]]:
    """Their tensors, with the feed-forward layer under one number for both sides, and the names of both."""
    weights, names = {}, dict(T5_NAMES)
    for name, tensor in state.items():
        side, feed = name.split(".")[0], ".2." if name.startswith("decoder") else ".1."
        is_feed = side in ("encoder", "decoder") and f"layer{feed}" in name
        weights[name.replace(f"layer{feed}", "feed.") if is_feed else name] = tensor
    for side, n_layers in (("encoder", 3), ("decoder", 2)):
        for i in range(n_layers):
            feed = f"{side}.block.{i}.feed"
            ups = ["wi_0", "wi_1"] if gated else ["wi"]
            weights[f"{feed}.up.weight"] = torch.cat([weights[f"{feed}.DenseReluDense.{up}.weight"] for up in ups])
    if gated:
        names["head.linear.weight"] = "lm_head.weight"
    else:
        weights["decoder.final_layer_norm.weight"] = weights["decoder.final_layer_norm.weight"] * D**-0.5
    return weights, names, T5_LAYERS


@pytest.mark.parametrize("gated", [False, True])
def test_t5_is_the_block_with_relative_positions_rms_norm_and_unscaled_scores(gated: bool) -> None:
    ours, theirs = t5_pair(gated)
    assert_same(ours, theirs)


def test_the_table_of_relative_positions_learns_as_theirs_does() -> None:
    """All layers of a stack share it, so its gradient is the sum over them; as are those of the shared token
    vectors.
    """
    ours, theirs = t5_pair(gated=False)
    source, target, read, _ = asked()
    weights = torch.randn(3, 9, V)
    (theirs(source, attention_mask=read, decoder_input_ids=target).logits * weights).mean().backward()
    (ours.logits(ours(Tokens(target), Tokens(source, TokenPositions.packed(read))).y) * weights).mean().backward()
    mine, expected = dict(ours.named_parameters()), dict(theirs.named_parameters())
    for name, theirs_name in T5_NAMES.items():
        gradient, by_theirs = mine[name].grad, expected[theirs_name].grad
        assert gradient is not None
        assert by_theirs is not None
        scale = D**0.5 if name == "stack.norm.weight" else 1.0  # theirs scales behind the weight
        torch.testing.assert_close(gradient, by_theirs * scale, **CLOSE)
        assert by_theirs.abs().max() > 1e-4, name


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 10), (4, 3), (64, 1000), (22, 77)])
def test_the_buckets_of_relative_positions_are_theirs(bidirectional: bool, n_buckets: int, max_distance: int) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    back = torch.arange(-300, 301)
    theirs = T5Attention._relative_position_bucket(-back, bidirectional, n_buckets, max_distance)
    found = buckets(back, bidirectional, n_buckets, max_distance)
    assert found.tolist() == theirs.tolist()
