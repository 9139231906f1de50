"""The same numbers as Hugging Face's encoder-decoders on copied weights: BART, mBART, T5, and Marian, the Transformer
of 2017.

Each model is one recipe of the block; logits and every attention map agree to 1e-5, also with padded sources and
targets. Its tensors are named and laid out as in `mini_tf/hf`. The encoder's d_k and n_kv_heads are the
decoder's, and both have one activation and one norm.
"""

from typing import Any

import pytest
import torch
from families import filled
from torch import Tensor

from mini_tf.hf.families import Layout
from mini_tf.inspection._capture import capture
from mini_tf.models.encoder_decoder import EncoderDecoder
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.positions.t5 import buckets
from mini_tf.recipe.kinds import settings_of

V, CONTEXT = 50, 24
D = 24
CLOSE = {"rtol": 0, "atol": 1e-5}
TINY = {
    "vocab_size": V, "d_model": D, "attn_implementation": "eager", "pad_token_id": 1, "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}  # fmt: skip
SIDES = {
    "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 3, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 56, "max_position_embeddings": CONTEXT, "init_std": 0.2, "forced_eos_token_id": None,
}  # fmt: skip


def built(**settings: Any) -> EncoderDecoder:
    """Our model of a recipe's words, with nothing of its fresh weights left."""
    model = settings_of("models", "encoder_decoder").model_validate(settings).build(V, CONTEXT)  # type: ignore[attr-defined]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    return model.eval()  # type: ignore[no-any-return]


def jolted(model: torch.nn.Module) -> None:
    """Norms and shifts start as 1 and 0, with which a mistaken one would not show."""
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn(parameter.shape, generator=draw)


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
                source,
                attention_mask=seen,
                decoder_input_ids=target,
                decoder_attention_mask=here,
                output_attentions=True,
                use_cache=False,
            )
            y = ours(inputs, Tokens(source) if plain else Tokens(source, TokenPositions.packed(seen))).y
        torch.testing.assert_close(ours.logits(y)[here == 1], expected.logits[here == 1], **CLOSE)
        groups = {
            "encoder.self": (expected.encoder_attentions, seen),
            "decoder.self": (expected.decoder_attentions, here),
            "cross": (expected.cross_attentions, here),
        }
        assert {attention.kind for attention in shown.attention} == set(groups)
        for kind, (maps, real) in groups.items():
            found = [attention.weights for attention in shown.attention if attention.kind == kind]
            for mine, map_ in zip(found, maps, strict=True):
                # What a pad reads is nobody's business: ours reads nothing.
                torch.testing.assert_close(mine.movedim(2, 1)[real == 1], map_.movedim(2, 1)[real == 1], **CLOSE)
        assert shown.difference < 1e-5


BART_SIDES = {
    "d_model": D, "n_layers": 2, "n_heads": 4, "d_ff": 56, "encoder": {"n_layers": 3, "n_heads": 3, "d_ff": 40},
    "bias": True,
}  # fmt: skip


LAST_NORMS = {"stack.norm": Layout(".decoder.layer_norm"), "encoder.norm": Layout(".encoder.layer_norm")}
"""What mBART has beside BART."""


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
    ours = built(
        **BART_SIDES, norm_place="pre" if pre else "post", embed_norm=True, embed_scale=scaled, positions="learned"
    )
    filled(ours, "bart", theirs.state_dict(), LAST_NORMS if pre else {})
    assert_same(ours, theirs)


def test_what_bart_reads_is_what_its_bare_model_reads() -> None:
    """BartModel, without a head: hidden states of both stacks."""
    from transformers import BartConfig, BartModel

    torch.manual_seed(1)
    theirs = BartModel(BartConfig(**TINY, **SIDES)).eval()
    jolted(theirs)
    ours = built(**BART_SIDES, norm_place="post", embed_norm=True, positions="learned")
    filled(ours, "bart", {f"model.{name}": tensor for name, tensor in theirs.state_dict().items()})
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
    config = MarianConfig(
        **TINY, **SIDES, scale_embedding=True, activation_function="relu", share_encoder_decoder_embeddings=not separate
    )
    theirs = MarianMTModel(config).eval()
    jolted(theirs)
    ours = built(
        **BART_SIDES, norm_place="post", embed_scale=True, activation="relu",
        positions={"kind": "sinusoidal", "order": "sines_first"},
        shared_embeddings=not separate,
    )  # fmt: skip
    filled(ours, "marian", theirs.state_dict())
    assert_same(ours, theirs)


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
        **TINY, **more, d_kv=5, num_heads=4, d_ff=40, num_layers=3, num_decoder_layers=2,
        relative_attention_num_buckets=8,
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
        d_model=D, n_layers=2, n_heads=4, d_k=5, d_ff=40, norm="rms", norm_eps=1e-6,
        activation="swiglu" if gated else "relu",
        tied=not gated, attention={"kind": "softmax", "scale": "none"},
        cross_attention={"kind": "softmax", "scale": "none"},
        positions=positions | {"bidirectional": False}, encoder={"n_layers": 3, "positions": positions},
    )  # fmt: skip
    filled(ours, "t5", theirs.state_dict())
    return ours, theirs


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
