"""Encoder and decoder: equivalences, symmetries, the shape of their parameter tree, and what they cost in memory."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from toys import DIMS, Fading, mixer_kinds, mixer_settings, own_view, present, seeded, tiny_mixer

from mini_tf.nn import state as states
from mini_tf.nn.block import Block, CrossInput, ResidualStep
from mini_tf.nn.layers import attention_kernels
from mini_tf.nn.layers.kernels import Dropout
from mini_tf.nn.mixer import AttentionDims, ForwardOutput
from mini_tf.nn.model import Model
from mini_tf.nn.stack import CrossAttentionSpec, Stack
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import listing, settings_of

V, CONTEXT = 40, 16


def model_of(kind: str, mixers: tuple[str, ...] = ("softmax",), positions: str = "none", **settings: Any) -> Model:
    torch.manual_seed(0)
    defaults = {"d_model": 24, "n_layers": 3, "n_heads": 4, "n_kv_heads": 2, "d_k": 6, "d_v": 8, "init_std": 0.4}
    parts = {"attention": tuple(map(mixer_settings, mixers)), "positions": settings_of("positions", positions)()}
    model = settings_of("models", kind)(**{**defaults, **parts, **settings}).build(V, CONTEXT)
    assert isinstance(model, Model)
    return model.double().eval()


def some_ids(batch: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(V, (batch, length), generator=torch.Generator().manual_seed(seed))


def scores(model: Model, tokens: Tokens, **more: Any) -> Tensor:
    return model.logits(model(tokens, **more).y)


def usable(mixer: str, positions: str, model: str = "decoder") -> bool:
    if ("causal" if model == "decoder" else "bidirectional") not in mixer_settings(mixer).supports:
        return False
    return settings_of("positions", positions).APPLIES_TO - {"embed"} <= mixer_settings(mixer).supports  # type: ignore[attr-defined]


def pairs_of(model: str = "decoder", among: tuple[str, ...] = ("rotary", "alibi")) -> list[tuple[str, str]]:
    """Every positional encoding with softmax attention, and every other mixer with one; test_mixers.py has them all.

    among: which, if the mixer supports it; else learned positions.
    """
    pairs = [("softmax", positions) for positions in listing("positions")]
    for mixer in mixer_kinds():
        if mixer != "softmax":
            pairs.append((mixer, next((word for word in among if usable(mixer, word, model)), "learned")))
    return [pair for pair in pairs if usable(*pair, model)]


CASES = pairs_of()


@pytest.mark.parametrize(("mixer", "positions"), [("softmax", "learned"), ("softmax", "rotary"), ("window", "alibi")])
def test_a_decoder_fed_in_steps_and_left_padded_scores_as_fed_whole(mixer: str, positions: str) -> None:
    model, ids = model_of("decoder", (mixer, "toy"), positions), some_ids(2, 9)
    whole = scores(model, Tokens(ids))
    state: states.State | None = model.start(2)
    parts = []
    for part in ids.split([4, 1, 2, 1, 1], dim=1):
        mixed = model(Tokens(part), state=state)
        state = mixed.state
        parts.append(model.logits(mixed.y))
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=0, atol=1e-9)

    padded = TokenPositions.packed(torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]]))
    begin = torch.stack([ids[0, :6], torch.cat([ids[1, :2] * 0 + 7, ids[1, :4]])])
    mixed = model(Tokens(begin, padded), state=model.start(2))
    follow = model(Tokens(torch.stack([ids[0, 6:9], ids[1, 4:7]])), state=mixed.state)
    torch.testing.assert_close(model.logits(follow.y), torch.stack([whole[0, 6:9], whole[1, 4:7]]), rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_documents_that_share_a_row_are_scored_as_each_alone(kind: str) -> None:
    """Positions of each begin at 0, pairs of tokens do not reach over its beginning, and it sees itself alone."""
    model, ids = model_of(kind, positions="learned", n_layers=2, ngrams=(50,)), some_ids(2, 9)
    segments = torch.tensor([[1, 1, 1, 2, 2, 2, 2, 2, 2], [1, 1, 2, 2, 2, 3, 3, 0, 0]])
    together = scores(model, Tokens(ids, TokenPositions.packed(segments)))
    for row, document in ((0, 1), (0, 2), (1, 1), (1, 2), (1, 3)):
        own = segments[row] == document
        torch.testing.assert_close(together[row, own], scores(model, Tokens(ids[row, own][None]))[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("mixer", present("attention", "softmax", "simple"))
def test_an_encoder_without_positions_does_not_see_the_order_of_words_layer_by_layer(mixer: str) -> None:
    """ "john loves mary" and "mary loves john": the same vectors in another order, after every layer."""
    model = model_of("encoder", (mixer,), "none", init_std=0.2)
    john_loves_mary, order = torch.tensor([[1, 2, 3]]), torch.tensor([2, 1, 0])
    first, second = (layer_outputs(model, ids) for ids in (john_loves_mary, john_loves_mary[:, order]))
    assert len(first) == 3
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a[:, order], b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_with_positions_an_encoder_sees_the_order_of_words(positions: str) -> None:
    model = model_of("encoder", positions=positions)
    ids, order = torch.tensor([[1, 2, 3, 4]]), torch.tensor([2, 1, 0, 3])
    first, second = layer_outputs(model, ids)[-1], layer_outputs(model, ids[:, order])[-1]
    assert (first[:, order] - second).abs().max() > 1e-3


def layer_outputs(model: Model, ids: Tensor) -> list[Tensor]:
    """What each layer adds up to, caught at its feed-forward step."""
    caught: list[Tensor] = []
    hooks = [
        layer.feed_forward.register_forward_hook(lambda _module, _given, out: caught.append(out))
        for layer in model.stack.layers  # type: ignore[union-attr]
    ]
    model(Tokens(ids))
    for hook in hooks:
        hook.remove()
    return caught


def test_mixers_are_tiled_over_the_layers() -> None:
    model = model_of("decoder", ("window", "window", "softmax"), n_layers=5)
    assert [type(mixer).__name__ for mixer in model.mixers()] == ["Window", "Window", "Softmax", "Window", "Window"]


def test_the_penalties_of_all_layers_are_summed_whichever_have_one() -> None:
    class Punished(Fading):
        def forward(self, *given: Any, **more: Any) -> ForwardOutput:
            return super().forward(*given, **more)._replace(penalty=torch.tensor(self.out.bias.sum().item()))

    model = model_of("decoder", ("toy",), n_layers=4)
    for number, layer in enumerate(model.stack.layers):  # type: ignore[union-attr, arg-type]
        if number != 2:
            layer.self_attn.part.__class__ = Punished
            nn.init.constant_(layer.self_attn.part.out.bias, 10.0**number / 24)
    mixed = model(Tokens(some_ids(1, 3)))
    assert mixed.penalty.item() == pytest.approx(1 + 10 + 1000)


@pytest.mark.parametrize(("first", "second"), [(None, None), (2.0, None), (None, 3.0), (2.0, 3.0)])
def test_the_penalties_of_both_mixers_of_a_layer_are_summed(first: float | None, second: float | None) -> None:
    class Punished(Fading):
        def __init__(self, penalty: float | None) -> None:
            super().__init__(DIMS)
            self.penalty = None if penalty is None else torch.tensor(penalty)

        def forward(self, *given: Any, **more: Any) -> ForwardOutput:
            return super().forward(*given, **more)._replace(penalty=self.penalty)

    block = Block(
        Punished(first), Punished(second), None, lambda part: ResidualStep(part, nn.Identity(), False, True, 0.0)
    ).double()
    x, view = seeded(2, 3, 12), own_view(True, TokenPositions(3))
    penalty = block(x, view, CrossInput(x, view)).penalty
    assert (None if penalty is None else penalty.item()) == (
        None if first is second is None else (first or 0) + (second or 0)
    )


def test_widths_of_heads_are_those_given_or_shares_of_the_model() -> None:
    def dims(d_memory: int | None = None, **given: int) -> AttentionDims:
        return settings_of("models", "decoder")(d_model=24, n_heads=4, **given).attention_dims(d_memory)  # type: ignore[attr-defined, no-any-return, arg-type]

    assert dims() == AttentionDims(24, 24, n_heads=4, n_kv_heads=4, d_k=6, d_v=6)
    assert dims(d_k=8) == AttentionDims(24, 24, n_heads=4, n_kv_heads=4, d_k=8, d_v=8)
    narrow: Any = settings_of("models", "decoder")(d_model=24, n_heads=4, d_embedding=9, embed_scale=True).build(
        V, CONTEXT
    )
    assert narrow.embedding.scale == 3.0, "the square root of the width of the table"
    assert dims(10, d_k=8, d_v=7, n_kv_heads=2) == AttentionDims(24, 10, n_heads=4, n_kv_heads=2, d_k=8, d_v=7)


def test_norms_and_layers_without_bias_or_scale_have_none_and_tied_weights_one_name() -> None:
    def names(**given: Any) -> set[str]:
        return set(
            settings_of("models", "decoder")(d_model=8, n_heads=2, n_layers=1, **given).build(V, CONTEXT).weights()
        )

    assert not [name for name in names() if name.endswith("bias")]
    assert {"stack.norm.weight", "stack.norm.bias", "stack.layers.0.self_attn.part.out.bias"} <= names(bias=True)
    assert not [name for name in names(norm_weight=False) if "norm" in name]
    assert not [name for name in names(norm_weight=False, norm="rms") if "norm" in name]
    assert {"embedding.tokens.weight"} == {name for name in names() if name.startswith(("embedding", "head"))}
    assert {"embedding.tokens.weight", "head.linear.weight"} == {
        n for n in names(tied=False) if n.startswith(("embedding", "head"))
    }


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("at", [None, [7, 0, 3]], ids=str)
def test_a_layer_adds_its_parts_one_after_the_other_or_both_to_its_input(parallel: bool, at: list[int] | None) -> None:
    block = model_of("decoder", parallel=parallel, bias=True).stack.layers[1]  # type: ignore[union-attr, index]
    x, view, chosen = seeded(2, 5, 24), own_view(True, TokenPositions(5)), None if at is None else torch.tensor(at)
    normed = block.self_attn.norm(x)
    mixed = x + block.self_attn.part(normed, normed, view).y
    expected = mixed + block.feed_forward.part(block.feed_forward.norm(x if parallel else mixed))
    expected = expected if chosen is None else expected.flatten(0, 1)[chosen]
    torch.testing.assert_close(block(x, view, at=chosen).y, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "width", "depth", "expected"),
    [
        ({"n_heads": 8, "n_kv_heads": 4, "d_ff": 100}, 0.375, 0.5, (24, 3, 1, 38, 3)),
        ({"n_heads": 8, "n_kv_heads": 4}, 0.5, 1.0, (32, 4, 2, None, 6)),
        ({"n_heads": 8, "d_ff": 0}, 0.01, 0.01, (8, 1, None, 0, 1)),
        ({"n_heads": 4, "d_k": 6, "d_ff": 10}, 0.3, 0.4, (19, 1, None, 3, 2)),
    ],
)
def test_a_smaller_model_has_whole_heads_of_the_same_width(
    given: dict[str, int], width: float, depth: float, expected: Any
) -> None:
    whole: Any = settings_of("models", "decoder")(d_model=64, n_layers=6, **given)
    small = whole.scaled(width, depth)
    assert (small.d_model, small.n_heads, small.n_kv_heads, small.d_ff, small.n_layers) == expected
    assert small.head_dim == whole.head_dim
    small.build(V, CONTEXT)


def test_the_parameter_tree_is_what_files_hold() -> None:
    """Parameter names and shapes are a file format: a change here needs a way to read older files."""
    bert = model_of(
        "encoder",
        positions="learned",
        head="bert",
        n_types=2,
        embed_norm=True,
        bias=True,
        n_layers=1,
        norm_place="post",
    )
    gpt = model_of("decoder", positions="fourier", tied=False, activation="swiglu", n_layers=1, norm="rms", d_ff=10)
    assert {name: tuple(tensor.shape) for name, tensor in bert.state_dict().items()} == {
        "embedding.tokens.weight": (40, 24),
        "embedding.types.weight": (2, 24),
        "embedding.position.table.weight": (16, 24),
        "embedding.norm.weight": (24,),
        "embedding.norm.bias": (24,),
        "stack.layers.0.self_attn.part.qkv.weight": (24 + 12 + 16, 24),
        "stack.layers.0.self_attn.part.qkv.bias": (52,),
        "stack.layers.0.self_attn.part.out.weight": (24, 32),
        "stack.layers.0.self_attn.part.out.bias": (24,),
        "stack.layers.0.self_attn.norm.weight": (24,),
        "stack.layers.0.self_attn.norm.bias": (24,),
        "stack.layers.0.feed_forward.part.up.weight": (96, 24),
        "stack.layers.0.feed_forward.part.up.bias": (96,),
        "stack.layers.0.feed_forward.part.down.weight": (24, 96),
        "stack.layers.0.feed_forward.part.down.bias": (24,),
        "stack.layers.0.feed_forward.norm.weight": (24,),
        "stack.layers.0.feed_forward.norm.bias": (24,),
        "head.transform.dense.weight": (24, 24),
        "head.transform.dense.bias": (24,),
        "head.transform.norm.weight": (24,),
        "head.transform.norm.bias": (24,),
        "head.linear.weight": (40, 24),
        "head.linear.bias": (40,),
    }
    assert {name: tuple(tensor.shape) for name, tensor in gpt.state_dict().items()} == {
        "embedding.tokens.weight": (40, 24),
        "embedding.position.map.weight": (24, 65),
        "stack.layers.0.self_attn.part.qkv.weight": (52, 24),
        "stack.layers.0.self_attn.part.out.weight": (24, 32),
        "stack.layers.0.self_attn.norm.weight": (24,),
        "stack.layers.0.feed_forward.part.up.weight": (20, 24),
        "stack.layers.0.feed_forward.part.down.weight": (24, 10),
        "stack.layers.0.feed_forward.norm.weight": (24,),
        "stack.norm.weight": (24,),
        "head.linear.weight": (40, 24),
    }


@pytest.mark.parametrize("init", ["scaled", "zero"])
def test_a_fresh_model_knows_nothing(init: str) -> None:
    """The first loss is near log V, exactly it where the head starts at zero."""
    model = model_of("decoder", init=init, init_std=0.02, tied=False)
    ids = some_ids(8, 16)
    loss = torch.nn.functional.cross_entropy(
        scores(model, Tokens(ids)).flatten(0, 1), some_ids(8, 16, seed=2).flatten()
    )
    assert abs(loss.item() - torch.tensor(float(V)).log().item()) < (1e-6 if init == "zero" else 0.05)


@pytest.mark.parametrize("init", ["scaled", "zero"])
def test_fresh_parameters_are_those_of_the_table_of_init(init: str) -> None:
    """Of six matrices that write into the residual stream; a spread is known within five of its standard deviations."""
    model = model_of("decoder", init=init, init_std=0.02, tied=False, bias=True)
    special = {
        "self_attn.part.out.weight": 0.02 / 6**0.5,
        "feed_forward.part.down.weight": 0.02 / 6**0.5,
        "head.linear.weight": 0.02,
    }
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or (init == "zero" and name.endswith(tuple(special))):
            assert (parameter == 0).all(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        else:
            expected = next((spread for end, spread in special.items() if name.endswith(end)), 0.02)
            assert parameter.square().mean().sqrt().item() == pytest.approx(
                expected, rel=5 / (2 * parameter.numel()) ** 0.5
            ), name


@pytest.mark.parametrize("kind", present("models", "decoder", "perceiver"))
def test_projections_that_are_applied_often_start_smaller(kind: str) -> None:
    """A pass counts as a layer does: four passes halve the first weights of what writes into the residual stream."""

    class Repeated(settings_of("models", kind)):  # type: ignore[misc]
        n_blocks: int = 1

        def build_stack(self, positional_encoding: Any, cross_spec: Any = None) -> Stack:
            return Stack(self, True, positional_encoding, cross_spec, n_passes=self.n_blocks)

    models: list[Model] = []
    for n_blocks in (1, 4):
        torch.manual_seed(0)
        models.append(Repeated(d_model=8, n_layers=2, n_heads=2, n_blocks=n_blocks).build(V, CONTEXT))
    for (name, once), four in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        writes = (
            name.endswith(("part.out.weight", "feed_forward.part.down.weight"))
            and name != "decoder.layers.0.cross_attn.part.out.weight"
        )
        torch.testing.assert_close(four, once / 2 if writes else once)


def assert_dropped(some: Tensor, whole: Tensor, rate: float) -> None:
    """Each number is 0 or has grown, and there are both."""
    kept = some.abs() > 1e-9
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(some, torch.where(kept, whole / (1 - rate), 0.0))


def test_embeddings_are_dropped_in_training_after_their_norm() -> None:
    model, tokens = model_of("decoder", positions="learned", embed_norm=True, dropout_rate=0.25), Tokens(some_ids(2, 9))
    whole = model.embedding(tokens, TokenPositions(9))
    assert_dropped(model.train().embedding(tokens, TokenPositions(9)), whole, 0.25)


@pytest.mark.parametrize("post", [False, True])
def test_what_a_part_adds_is_dropped_in_training_and_not_the_stream_that_it_is_added_to(post: bool) -> None:
    part, x = nn.Linear(8, 8).double(), seeded(4, 5, 8)
    step = ResidualStep(part, nn.Identity(), post, True, 0.25)
    assert_dropped(step(x) - x, part(x), 0.25)
    torch.testing.assert_close(step.eval()(x) - x, part(x))


def test_every_step_of_a_model_drops_what_its_recipe_says() -> None:
    model = model_of("decoder", dropout_rate=0.25)
    assert [module.rate for module in model.modules() if isinstance(module, Dropout)] == [0.25] * (1 + 2 * 3)


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


LINEAR = {"softmax", "window", "linear", "favor", "simple", "sru", "srupp", "expire_span"}
LONG = [
    (kind, positions, causal, causal)
    for kind, positions, causal in product(sorted(LINEAR), ("none", "rotary", "alibi"), (True, False))
    if kind in mixer_kinds() and usable(kind, positions) and (positions == "none" or kind in ("softmax", "window"))
]
LONG += [("softmax", "none", True, False), ("softmax", "none", False, True)]
LONG.append(("softmax", "t5", True, True))  # a learned bias is slow


@pytest.mark.parametrize(("kind", "positions", "causal", "packed"), LONG)
def test_long_texts_take_memory_that_is_linear_in_their_length(
    kind: str, positions: str, causal: bool, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At length 1,024 less than 4 MiB are saved for the backward pass, the size of one matrix of weights, and nothing
    has L x M elements, forward or backward.
    """
    length = 1024
    monkeypatch.setattr(
        attention_kernels, "MASK_ELEMENTS", length * length // 16
    )  # what is read in blocks at 8,192 is so here too
    width = {"d_model": 32, "n_layers": 1, "n_heads": 2}
    mixer = settings_of("attention", kind)(**({"window": 32} if kind == "window" else {}))
    settings = settings_of("models", "decoder")(
        **width, attention=(mixer,), positions=settings_of("positions", positions)()
    )
    torch.manual_seed(0)
    mixer = settings.build(V, length).mixers()[0]  # type: ignore[attr-defined]
    token_positions = TokenPositions.packed(torch.arange(length)[None] // 375 + 1) if packed else TokenPositions(length)
    x, saved, largest = torch.randn(1, length, 32, requires_grad=True), [], Largest()
    with largest, torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        mixer(x, x, own_view(causal, token_positions)).y.sum().backward()
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved}
    assert sum(storages.values()) < 4 * 2**20
    assert largest.elements < length * length / 4


@pytest.mark.parametrize("causal", [False, True])
def test_a_window_makes_nothing_that_grows_with_the_square_of_a_short_text(causal: bool) -> None:
    mixer, x = tiny_mixer("window"), seeded(1, 300, 12)
    with Largest() as largest, torch.no_grad():
        mixer(x, x, own_view(causal, TokenPositions(300)))
    assert largest.elements < 300 * 300 / 4


def test_a_text_of_8192_tokens_is_read_in_blocks_without_asking_for_them() -> None:
    x = torch.randn(1, 8192, 8)
    settings = settings_of("models", "decoder")(
        d_model=8, n_layers=1, n_heads=1, positions=settings_of("positions", "alibi")()
    )
    mixer = settings.build(V, 8192).mixers()[0]  # type: ignore[attr-defined]
    with Largest() as largest, torch.no_grad():
        mixer(x, x, own_view(True, TokenPositions(8192)))
    assert largest.elements < 8192 * 8192 / 8


def test_a_cross_mixers_empty_state_survives_a_file() -> None:
    """It has no tensors, so a file does not hold it; the stack goes on as if it did."""
    settings = settings_of("models", "decoder")(d_model=16, n_layers=2, n_heads=2)
    stack = Stack(settings, True, None, CrossAttentionSpec(settings.attention[0], 16)).double().eval()  # type: ignore[arg-type, attr-defined]
    x, source = seeded(1, 4, 16), stack.recall(seeded(1, 3, 16, seed=2), TokenPositions(3))
    state = stack(x[:, :2], TokenPositions(2), source, state=stack.start(1)).state
    again = states.unflatten(states.flatten(state))
    assert again != state
    torch.testing.assert_close(
        stack(x[:, 2:], TokenPositions(2, 2), source, state=again).y, stack(x, TokenPositions(4), source).y[:, 2:]
    )
    with pytest.raises(ValueError, match="needs a source"):
        stack(x, TokenPositions(4))


def test_a_row_that_ends_in_padding_cannot_be_continued() -> None:
    model = model_of("decoder")
    with pytest.raises(ValueError, match="pad prompts on the left"):
        model(Tokens(some_ids(1, 3), TokenPositions.packed(torch.tensor([[1, 1, 0]]))), state=model.start(1))


def test_queries_are_normalised_alike_in_half_and_full_precision() -> None:
    """However small they are, as in a fresh model: a model trained in bf16 is prompted in fp32."""
    torch.manual_seed(0)
    mixer = settings_of("attention", "softmax")(qk_norm=True)
    model = settings_of("models", "decoder")(d_model=16, n_layers=1, n_heads=2, attention=(mixer,)).build(V, CONTEXT)  # type: ignore[attr-defined]
    [headed] = model.mixers()
    x = torch.full((1, 3, 2, 8), 1e-3)
    torch.testing.assert_close(headed.normed(x.bfloat16(), None).float(), headed.normed(x, None), rtol=0.02, atol=0.0)
    torch.testing.assert_close(
        headed.normed(x, None).square().mean(dim=-1), torch.full((1, 3, 2), 1.0), rtol=0.2, atol=0.0
    )
