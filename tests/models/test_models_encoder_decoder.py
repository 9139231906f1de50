"""The encoder-decoder: who may see whom, state and memory against the whole, what is shared, and the shape of its
parameter tree.
"""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from toys import FadingMean, mixer_settings, seeded

from mini_tf.models.encoder_decoder import EncoderDecoder, EncoderSettings, Settings
from mini_tf.nn import state as states
from mini_tf.nn.model import Model
from mini_tf.nn.token_cache import SourceMemory
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.parsing.schema_faults import faults_of

V, SOURCE_V, CONTEXT, D = 40, 30, 24, 24
B, L, M = 3, 9, 7
EXACT = {"rtol": 0, "atol": 1e-10}
READ = torch.tensor([[1] * 7, [1, 1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]])
CONTINUED = torch.tensor([[1] * 9, [0, 0, 1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1, 1]])
WRITTEN = torch.tensor([[1] * 9, [1, 1, 1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0, 0]])


def settings_with(
    mixer: str = "softmax", positions: str = "sinusoidal", cross: str | None = "softmax", **settings: Any
) -> Settings:
    """`mixer` on both sides, where it can read to both."""
    own, place = mixer_settings(mixer), settings_of("positions", positions)()
    side = settings.pop("encoder", {})
    side = {"n_layers": 3, "attention": (own if "bidirectional" in own.supports else mixer_settings("softmax"),)} | side
    given = {
        "d_model": D, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "d_k": 6, "d_v": 8, "init_std": 0.4,
        "attention": (own,),
        "positions": place, "cross_attention": None if cross is None else mixer_settings(cross),
        "encoder": EncoderSettings(**side),
    }  # fmt: skip
    return Settings(**given | settings)


def model_of(
    mixer: str = "softmax", positions: str = "sinusoidal", *, source_vocabulary: int | None = None, **settings: Any
) -> EncoderDecoder:
    torch.manual_seed(0)
    return settings_with(mixer, positions, **settings).build(V, CONTEXT, source_vocabulary).double().eval()


def some_ids(batch: int, length: int, seed: int = 1, size: int = SOURCE_V) -> Tensor:
    return torch.randint(size, (batch, length), generator=torch.Generator().manual_seed(seed))


def pairs(padded: bool) -> tuple[Tokens, Tokens]:
    """Targets and sources of three pairs, plain or padded to the right."""
    target, source = some_ids(B, L), some_ids(B, M, seed=2)
    if not padded:
        return Tokens(target), Tokens(source)
    return Tokens(target, TokenPositions.packed(WRITTEN)), Tokens(source, TokenPositions.packed(READ))


def scores(model: Model, inputs: Tokens, source: Tokens | SourceMemory, **more: Any) -> Tensor:
    return model.logits(model(inputs, source, **more).y)


def cut(tokens: Tokens, first: int, last: int) -> Tokens:
    """Tokens first..last-1; those of plain rows stand where the state says."""
    positions = tokens.token_positions
    if positions is None:
        return Tokens(tokens.ids[:, first:last])
    assert positions.segments is not None
    assert positions.positions is not None
    return Tokens(
        tokens.ids[:, first:last],
        TokenPositions(last - first, 0, positions.segments[:, first:last], positions.positions[:, first:last]),
    )


def in_blocks(model: EncoderDecoder, inputs: Tokens, memory: SourceMemory, sizes: tuple[int, ...]) -> Tensor:
    """The scores of `inputs`, fed in blocks of these sizes with state."""
    state: states.State | None = model.start(len(inputs.ids))
    parts, first = [], 0
    for size in sizes:
        mixed = model(cut(inputs, first, first + size), memory, state=state)
        state = None if mixed.state is None else model.trim(mixed.state)
        parts.append(model.logits(mixed.y))
        first += size
    return torch.cat(parts, dim=1)


# Who sees whom


def test_every_token_of_the_source_matters_to_every_target_token_and_its_padding_to_none() -> None:
    model, (target, source) = model_of(), pairs(padded=True)
    embedded: list[Tensor] = []

    def keep(_module: Any, _inputs: Any, x: Tensor) -> Tensor:
        embedded.append(x.detach().requires_grad_())
        return embedded[0]

    model.source_embedding.register_forward_hook(keep)
    logits = scores(model, target, source)
    for t in (0, 1, 5):
        (gradient,) = torch.autograd.grad(logits[:, t].square().sum(), embedded, retain_graph=True)
        has_gradient = gradient.any(dim=-1)
        assert not has_gradient[READ == 0].any()
        rows = WRITTEN[:, t] == 1
        assert has_gradient[rows][READ[rows] == 1].all()


def test_a_decoder_without_cross_mixers_ignores_the_source_and_is_the_decoder_alone() -> None:
    model = model_of(cross=None, embed_norm=True)
    target, source = pairs(padded=True)
    memory = model.encode(source)
    assert memory.layers is None
    ours = scores(model, target, source)
    assert torch.equal(scores(model, target, Tokens(some_ids(B, 2, seed=7))), ours)
    assert torch.equal(scores(model, target, memory), ours)
    shared = settings_with(cross=None, embed_norm=True).model_dump(
        exclude={"encoder", "cross_attention", "copy_attention", "shared_embeddings"}
    )
    decoder = settings_of("models", "decoder")(**shared).build(V, CONTEXT).double().eval()  # type: ignore[attr-defined]
    decoder.load_weights(model.weights())
    torch.testing.assert_close(ours, decoder.logits(decoder(target).y), **EXACT)


def test_a_source_must_be_given() -> None:
    with pytest.raises(ValueError, match="needs a source"):
        model_of()(Tokens(some_ids(1, 3)))


# State and memory


def test_a_target_padded_on_the_left_scores_in_blocks_as_whole() -> None:
    """On the left, since a row that ends in padding cannot be continued; the source is padded, too."""
    model, source = model_of(positions="rotary"), pairs(padded=True)[1]
    target, real = Tokens(some_ids(B, L), TokenPositions.packed(CONTINUED)), CONTINUED == 1
    whole, memory = scores(model, target, source), model.encode(source)
    assert torch.equal(scores(model, target, memory), whole)
    torch.testing.assert_close(in_blocks(model, target, memory, (4, 1, 1, 3))[real], whole[real], **EXACT)


def test_pairs_of_tokens_are_told_from_single_ones_on_both_sides() -> None:
    """n-gram tables of both sides: the decoder's carries on from block to block."""
    model = model_of(ngrams=(50, 60))
    target, source = Tokens(some_ids(B, L)), pairs(True)[1]
    assert model.embedding.ngrams is not model.source_embedding.ngrams
    torch.testing.assert_close(
        in_blocks(model, target, model.encode(source), (2, 1, 6)), scores(model, target, source), **EXACT
    )


@pytest.mark.parametrize("padded", [False, True])
def test_neighbours_that_share_a_row_of_the_memory_score_as_with_a_row_each(padded: bool) -> None:
    model, k = model_of(), 2
    memory = model.encode(pairs(padded)[1])
    rows = torch.arange(B).repeat_interleave(k)
    ids = some_ids(B * k, L, seed=5)
    inputs = Tokens(ids, TokenPositions.packed(WRITTEN[torch.tensor([1, 0, 2, 1, 0, 2])]) if padded else None)
    own = memory.select(rows)
    torch.testing.assert_close(scores(model, inputs, memory), scores(model, inputs, own), **EXACT)
    torch.testing.assert_close(
        in_blocks(model, Tokens(ids), memory, (1, 1, 4, 3)), scores(model, Tokens(ids), own), **EXACT
    )


def test_selected_rows_of_a_padded_source_and_the_state_go_on_as_those_rows() -> None:
    model, rows = model_of(), torch.tensor([2, 0, 2, 1])
    target, source = Tokens(some_ids(B, L)), pairs(padded=True)[1]
    whole, memory = scores(model, target, source), model.encode(source)
    state = model(cut(target, 0, 4), memory, state=model.start(B)).state
    follow = model(Tokens(target.ids[rows, 4:]), memory.select(rows), state=states.reorder(state, rows))
    torch.testing.assert_close(model.logits(follow.y), whole[rows, 4:], **EXACT)


def test_without_positions_in_the_encoder_the_order_of_the_source_is_not_seen() -> None:
    target, source = pairs(padded=False)
    turned = Tokens(source.ids.flip(1))
    for positions, sees in (("none", False), ("sinusoidal", True)):
        model = model_of(encoder={"positions": settings_of("positions", positions)()})
        difference = (scores(model, target, source) - scores(model, target, turned)).abs().max()
        assert difference > 1e-3 if sees else difference < 1e-10


def test_a_memory_is_made_once_and_read_unchanged() -> None:
    model, (target, source) = model_of(), pairs(True)
    memory = model.encode(source)
    kept = [{name: tensor.clone() for name, tensor in layer.items()} for layer in memory.layers or []]
    in_blocks(model, Tokens(target.ids), memory, (4, 5))
    for before, after in zip(kept, memory.layers or [], strict=True):
        assert all(torch.equal(before[name], after[name]) for name in before)
    assert len(kept) == 2


# What is shared


def test_sides_may_differ_in_width_depth_heads_mixers_and_positions() -> None:
    side = {"d_model": 10, "n_layers": 1, "n_heads": 2, "d_ff": 12, "attention": (mixer_settings("window"),)}
    model = model_of(encoder=side | {"positions": settings_of("positions", "alibi")()}, n_kv_heads=None)
    assert [len(stack.layers) for stack in (model.encoder, model.stack)] == [1, 2]
    assert model.source_embedding.tokens.weight.shape == (V, 10)
    target, source = pairs(True)
    torch.testing.assert_close(
        in_blocks(model, Tokens(target.ids), model.encode(source), (4, 5)), scores(model, Tokens(target.ids), source)
    )
    assert model.encode(source).layers[0]["k"].shape == (B, 4, M, 6)  # type: ignore[index]


def test_a_wider_encoder_has_a_feed_forward_layer_of_its_own_width() -> None:
    assert settings_with(d_ff=50, encoder={"d_model": 36}).source_stack.d_ff is None
    assert settings_with(d_ff=50).source_stack.d_ff == 50
    assert model_of(d_ff=50, encoder={"d_model": 36}).encoder.layers[0].feed_forward.part.down.weight.shape == (36, 144)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("shared", "tied", "source_vocabulary"), [(s, t, v) for s in (0, 1) for t in (0, 1) for v in (None, SOURCE_V)]
)
def test_tables_are_shared_where_a_recipe_says_so_and_both_sides_have_one_vocabulary(
    shared: int, tied: int, source_vocabulary: int | None
) -> None:
    def size(**given: Any) -> int:
        return sum(
            parameter.numel() for parameter in model_of(source_vocabulary=source_vocabulary, **given).parameters()
        )

    one_table = size(shared_embeddings=True, tied=True) if source_vocabulary is None else size(tied=True) - SOURCE_V * D
    own_source = (source_vocabulary or V) * D if source_vocabulary or not shared else 0
    assert size(shared_embeddings=bool(shared), tied=bool(tied)) == one_table + own_source + (0 if tied else V * D)


def test_the_shared_table_learns_the_sum_of_what_its_three_uses_learn() -> None:
    shared, untied = model_of(embed_scale=True), model_of(embed_scale=True, shared_embeddings=False, tied=False)
    table = shared.embedding.tokens.weight
    copies = {"source_embedding.tokens.weight": table.detach(), "head.linear.weight": table.detach()}
    untied.load_weights(shared.weights() | copies)
    target, source = pairs(True)
    for model in (shared, untied):
        (scores(model, target, source) * seeded(B, L, V)).sum().backward()
    uses = (untied.embedding.tokens.weight, untied.source_embedding.tokens.weight, untied.head.linear.weight)
    gradients = [use.grad for use in uses if use.grad is not None]
    assert [bool(gradient.abs().sum() > 0) for gradient in gradients] == [True] * 3
    assert table.grad is not None
    torch.testing.assert_close(table.grad, torch.stack(gradients).sum(dim=0), **EXACT)


def test_token_vectors_are_scaled_by_the_root_of_their_sides_width() -> None:
    side = {"d_model": 16, "n_heads": 4}
    model, (target, source) = model_of(positions="none", embed_scale=True, encoder=side), pairs(False)
    for embedding, tokens, width in ((model.embedding, target, D), (model.source_embedding, source, 16)):
        torch.testing.assert_close(
            embedding(tokens, TokenPositions(tokens.ids.shape[1])), embedding.tokens(tokens.ids) * width**0.5, **EXACT
        )


# Files, recipes, fresh weights


def test_the_parameter_tree_is_what_files_hold() -> None:
    """Parameter names and shapes are a file format: a change here needs a way to read older files."""
    one = {"n_layers": 1, "encoder": {"n_layers": 1}}
    paper = model_of(**one, bias=True, norm_place="post", activation="relu", embed_scale=True)
    bart = model_of(
        positions="learned",
        **one | {"encoder": {"n_layers": 1, "d_ff": 30}},
        embed_norm=True,
        norm_place="post",
        bias=True,
    )
    t5 = settings_with(
        positions="t5", norm="rms", n_layers=1, tied=False, encoder={"n_layers": 1, "d_model": 16, "n_heads": 2}
    )
    weights = t5.build(V, CONTEXT, SOURCE_V).weights()
    layer = {
        "self_attn.part.qkv": (52, D),
        "self_attn.part.out": (D, 32),
        "feed_forward.part.up": (96, D),
        "feed_forward.part.down": (D, 96),
    }
    layer |= {"self_attn.norm": (D,), "feed_forward.norm": (D,)}
    cross = {
        "cross_attn.part.q": (24, D),
        "cross_attn.part.kv": (12 + 16, D),
        "cross_attn.part.out": (D, 32),
        "cross_attn.norm": (D,),
    }

    def with_bias(tree: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        return {
            f"{name}.{kind}": shape[: len(shape) if kind == "weight" else 1]
            for name, shape in tree.items()
            for kind in ("weight", "bias")
        }

    stacks = {f"encoder.layers.0.{name}": shape for name, shape in layer.items()}
    stacks |= {f"stack.layers.0.{name}": shape for name, shape in (layer | cross).items()}
    assert shapes(paper) == {"embedding.tokens.weight": (V, D)} | with_bias(stacks)
    narrow = {"encoder.layers.0.feed_forward.part.up": (30, D), "encoder.layers.0.feed_forward.part.down": (D, 30)}
    assert shapes(bart) == {
        "embedding.tokens.weight": (V, D),
        "embedding.position.table.weight": (CONTEXT, D),
        "source_embedding.position.table.weight": (CONTEXT, D),
        **with_bias({"embedding.norm": (D,), "source_embedding.norm": (D,)} | stacks | narrow),
    }
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == {
        "embedding.tokens.weight": (V, D),
        "embedding.position.table.weight": (32, 4),
        "source_embedding.tokens.weight": (SOURCE_V, 16),
        "source_embedding.position.table.weight": (32, 2),
        "encoder.layers.0.self_attn.part.qkv.weight": (12 + 12 + 16, 16),
        "encoder.layers.0.self_attn.part.out.weight": (16, 16),
        "encoder.layers.0.self_attn.norm.weight": (16,),
        "encoder.layers.0.feed_forward.part.up.weight": (64, 16),
        "encoder.layers.0.feed_forward.part.down.weight": (16, 64),
        "encoder.layers.0.feed_forward.norm.weight": (16,),
        "encoder.norm.weight": (16,),
        **{
            f"stack.layers.0.{name}.weight": shape
            for name, shape in (layer | cross | {"cross_attn.part.kv": (28, 16)}).items()
        },
        "stack.norm.weight": (D,),
        "head.linear.weight": (V, D),
    }


def shapes(model: Model) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in model.weights().items()}


@pytest.mark.parametrize("init", ["scaled", "zero"])
def test_what_writes_into_a_residual_stream_starts_small_or_at_zero_on_both_sides(init: str) -> None:
    model = model_of(init=init, init_std=0.02, encoder={"n_layers": 5})
    for stack, n_writers in ((model.encoder, 5 * 2), (model.stack, 2 * 3)):
        assert len(stack.residual_outputs) == n_writers
        spread = torch.cat([writer.weight.flatten() for writer in stack.residual_outputs]).std().item()
        assert spread == pytest.approx(0.0 if init == "zero" else 0.02 * n_writers**-0.5, rel=0.05)
    ids = some_ids(8, 16)
    loss = torch.nn.functional.cross_entropy(
        scores(model, Tokens(ids), Tokens(some_ids(8, 5))).flatten(0, 1), some_ids(8, 16, 3).flatten()
    )
    assert abs(loss.item() - torch.tensor(float(V)).log().item()) < 0.1


@pytest.mark.parametrize(
    ("given", "key", "message"),
    [
        (
            {"cross_attention": "window"},
            "cross_attention",
            "window attention does not support cross-attention; use softmax",
        ),
        ({"cross_attention": "toy"}, "cross_attention", "no such kind 'toy'"),
        ({"n_types": 2}, "n_types", "an encoder-decoder has no token types; use 0"),
        (
            {"encoder": {"n_heads": 5}},
            "encoder.n_heads",
            "5 does not divide d_model 24; use 1, 2, 3, 4, 6, 8, 12 or 24, or give d_k",
        ),
        ({"encoder": {"d_model": 18}}, "encoder.n_heads", "4 does not divide d_model 18"),
        ({"encoder": {"positions": "rotary", "n_heads": 8}}, "encoder.positions", "needs an even d_k, not 3"),
        ({"encoder": {"attention": (FadingMean(),)}}, "encoder.attention", "does not support bidirectional attention"),
        ({"encoder": {"depth": 3}}, "encoder.depth", "no such key"),
        (
            {"encoder": {"positions": {"kind": "t5", "n_buckets": 9}}},
            "encoder.positions.n_buckets",
            "9 buckets cannot be split evenly between earlier and later keys; use 10",
        ),
        (
            {"positions": {"kind": "t5", "max_distance": 5}},
            "positions.max_distance",
            "the 8 nearest distances have a bucket each",
        ),
        (
            {"positions": {"kind": "t5", "max_distance": 8}},
            "positions.max_distance",
            "the 8 nearest distances have a bucket each",
        ),
        (
            {"positions": {"kind": "t5", "bidirectional": False, "max_distance": 16}},
            "positions.max_distance",
            "use more than 16",
        ),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused_where_it_is_wrong(given: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"d_model": 24, "n_heads": 4, "positions": "none"} | given)
    told = {".".join(map(str, fault.path)): fault.message for fault in faults_of(refused.value)}
    assert message in told[key]


def test_weights_are_taken_from_a_model_that_computes_the_same_with_them() -> None:
    """A copy mechanism is new."""

    def settings(**given: Any) -> Any:
        return settings_of("models", "encoder_decoder")(d_model=8, n_heads=2, **given)

    def differing(new: Any, old: Any) -> set[str]:
        return {key for key, mine, theirs in new.compare_with(old) if mine != theirs}

    softmax, old = settings_of("attention", "softmax"), settings()
    assert differing(settings(copy_attention=True, dropout_rate=0.3), old) == set()
    for other in (softmax(scale="none"), softmax(qk_norm=True), softmax(n_persistent=2), None):
        assert differing(settings(cross_attention=other), old) == {"cross_attention"}
    assert differing(old, settings(cross_attention=None)) == {"cross_attention"}
    assert differing(settings(n_layers=3, activation="relu"), old) == {"n_layers", "activation"}
    encoder: Any = settings_of("models", "encoder")(d_model=8, n_heads=2, n_layers=2)
    assert "encoder.n_layers" not in differing(settings(n_layers=2, encoder={"n_layers": 2}), encoder)
    assert "encoder.n_layers" in differing(settings(n_layers=2, encoder={"n_layers": 3}), encoder)
