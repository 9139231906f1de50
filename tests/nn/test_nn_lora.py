"""LoRA: the model begins as it was, only the narrow matrices learn, and merged it is a plain model that computes the
same bits.
"""

import copy
from typing import Any

import pytest
import torch
from test_generation_decoding import cached, uncached
from test_models import model_of, some_ids
from torch import Tensor, nn
from torch.testing import assert_close

from mini_tf.generation.fast_decoder import FastDecoder
from mini_tf.models.encoder_decoder import EncoderDecoder
from mini_tf.nn.layers.kernels import FusedLinear
from mini_tf.nn.lora import adapt, merge, merged_weights
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.optimizers import adamw, muon
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.sections import Adapter
from mini_tf.system.errors import RecipeFault
from mini_tf.training.optimizer import build, roles_of

KINDS = ["decoder", "encoder", "encoder_decoder"]
SETTINGS = Adapter(rank=3, alpha=7.5)
IDS, SOURCE = some_ids(2, 9), some_ids(2, 7, seed=2)


def small(kind: str = "decoder", dtype: torch.dtype = torch.float64, **settings: Any) -> Model:
    """swiglu, so that queries, keys, values, gates and values of the feed-forward layer are all parts of joined
    matrices.
    """
    return model_of(kind, **{"n_layers": 2, "activation": "swiglu", "positions": "sinusoidal"} | settings).to(dtype)


def hidden_of(model: Model) -> Tensor:
    hidden: Tensor = model(Tokens(IDS), Tokens(SOURCE) if isinstance(model, EncoderDecoder) else None).y
    return hidden


def logits_of(model: Model) -> Tensor:
    return model.logits(hidden_of(model))


def loss_of(model: Model) -> Tensor:
    return model.cross_entropy(hidden_of(model).flatten(0, 1), IDS.flatten())


@torch.no_grad()
def drawn(model: nn.Module, seed: int = 5) -> None:
    """Every A and B away from where it begins."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if "parametrizations.weight.0." in name:
            p.copy_(torch.randn(p.shape, dtype=p.dtype, generator=generator) * 0.3)


def learnt(kind: str = "decoder", dtype: torch.dtype = torch.float64, **settings: Any) -> Model:
    model = small(kind, dtype, **settings)
    adapt(model, SETTINGS)
    drawn(model)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_begins_as_it_was_to_the_bit(kind: str) -> None:
    model = small(kind, torch.float32)
    before = logits_of(model)
    names = adapt(model, SETTINGS)
    assert torch.equal(logits_of(model), before)
    linears = {name for name, part in small(kind).named_modules() if isinstance(part, nn.Linear)}
    assert set(names) == linears - {"head.linear"}


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_and_b_have_gradients_and_learn(kind: str) -> None:
    model = small(kind)
    adapt(model, SETTINGS)
    before = {name: tensor.clone() for name, tensor in model.weights().items()}
    optimizer = build(adamw.Settings(lr=0.01, weight_decay=0.5), model)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step(0.01)
    narrow = {name for name in before if ".weight.0.A." in name or ".weight.0.B." in name}
    assert {name for name, p in model.named_parameters() if p.grad is not None} == narrow
    assert {name for name, tensor in model.weights().items() if not torch.equal(tensor, before[name])} == narrow
    assert {name.rpartition(".")[0] for name in optimizer.state_tensors()} - {""} == narrow


def test_what_is_added_to_each_part_is_its_own_product_and_has_its_rank_at_most() -> None:
    torch.manual_seed(0)
    joined = FusedLinear(10, (12, 6, 8), bias=True).double()
    before = joined.weight.detach().clone()
    adapt(nn.ModuleDict({"stack": joined}), Adapter(rank=2, alpha=3.0, targets=("stack",)))
    drawn(joined)
    added = joined.weight.detach() - before
    own = dict(joined.named_parameters())
    at = "parametrizations.weight.0"
    for i, part in enumerate(added.split([12, 6, 8])):
        assert_close(part, 1.5 * own[f"{at}.B.{i}"].detach() @ own[f"{at}.A.{i}"].detach())
        assert torch.linalg.matrix_rank(part, atol=1e-9) == 2
    assert torch.linalg.matrix_rank(added, atol=1e-9) == 6


def test_gradients_are_those_of_the_formula() -> None:
    """Of y = x (W + s B A)^T with dL/dy = g: dL/dA = s B^T g^T x and dL/dB = s g^T x A^T."""
    torch.manual_seed(0)
    linear = nn.Linear(5, 4).double()
    adapt(nn.ModuleDict({"stack": linear}), Adapter(rank=2, alpha=5.0, targets=("stack",)))
    drawn(linear)
    x, g = torch.randn(7, 5).double(), torch.randn(7, 4).double()
    linear(x).backward(g)
    own = dict(linear.named_parameters())
    a, b = own["parametrizations.weight.0.A.0"], own["parametrizations.weight.0.B.0"]
    assert a.grad is not None
    assert b.grad is not None
    assert_close(a.grad, 2.5 * b.detach().t() @ g.t() @ x)
    assert_close(b.grad, 2.5 * g.t() @ x @ a.detach().t())
    assert own["bias"].grad is None


def test_a_is_drawn_within_the_root_of_its_width_and_anew_from_each_seed() -> None:
    def drawn_from(seed: int) -> Tensor:
        linear = nn.Linear(400, 50)
        torch.manual_seed(seed)
        adapt(nn.ModuleDict({"stack": linear}), Adapter(targets=("stack",)))
        return linear.get_parameter("parametrizations.weight.0.A.0").detach()

    a = drawn_from(1)
    assert a.abs().max() <= 0.05
    assert a.std().item() == pytest.approx(0.05 / 3**0.5, rel=0.05)
    assert torch.equal(a, drawn_from(1))
    assert not torch.equal(a, drawn_from(2))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_merged_it_is_a_plain_model_with_the_same_bits(kind: str, autocast: bool) -> None:
    def scores(model: Model) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return logits_of(model)

    model, plain = learnt(kind, torch.float32), small(kind, torch.float32)
    before, weights = scores(model), merged_weights(model.weights(), SETTINGS)
    assert any("parametrizations" in name for name in model.weights())
    assert not torch.equal(scores(plain), before)
    plain.load_weights(weights)
    assert torch.equal(scores(plain), before)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        merge(model)
    assert torch.equal(scores(model), before)
    assert set(model.weights()) == set(weights) == set(plain.weights())
    assert {type(part) for part in model.modules()} == {type(part) for part in plain.modules()}
    assert not any("parametrizations" in name for name in weights)


def test_weights_of_a_plain_model_are_merged_already() -> None:
    weights = small().weights()
    merged = merged_weights(weights, SETTINGS)
    assert merged.keys() == weights.keys()
    assert all(merged[name] is tensor for name, tensor in weights.items())


def test_weights_of_an_adapted_model_are_loaded_into_another() -> None:
    model, other = learnt("encoder_decoder"), small("encoder_decoder")
    adapt(other, SETTINGS)
    other.load_weights({name: tensor.clone() for name, tensor in model.weights().items()})
    assert torch.equal(logits_of(other), logits_of(model))
    assert len(model.weights()) == len(set(model.weights())) == len(dict(model.named_parameters()))


def test_a_copy_is_merged_without_its_original() -> None:
    model = learnt()
    before = logits_of(model)
    twin = copy.deepcopy(model)
    drawn(twin, seed=6)
    other = logits_of(twin)
    assert not torch.equal(other, before)
    merge(twin)
    assert torch.equal(logits_of(twin), other)
    assert torch.equal(logits_of(model), before)
    merge(model)
    assert torch.equal(logits_of(model), before)


def test_a_table_that_embeds_and_scores_gets_no_adapter_but_a_head_of_its_own_may() -> None:
    everything = Adapter(targets=("*",))
    tied, untied = small(), small(tied=False)
    assert "head.linear" not in adapt(tied, everything)
    assert tied.get_parameter("head.linear.weight") is tied.get_parameter("embedding.tokens.weight")
    assert "head.linear" in adapt(untied, everything)


def test_what_is_new_learns_as_a_whole_beside_the_adapters() -> None:
    model = small(tied=False)
    names = adapt(model, Adapter(targets=("*",)), trainable={"head.linear.weight"})
    assert "head.linear" not in names
    loss_of(model).backward()
    learning = {name for name, p in model.named_parameters() if p.grad is not None}
    assert "head.linear.weight" in learning
    assert all(".weight.0." in name for name in learning - {"head.linear.weight"})


def test_targets_that_match_nothing_are_told_with_those_there_are() -> None:
    names = r".*stack\.layers\.1\.self_attn\.part\.qkv, .* and 2 more"
    with pytest.raises(
        RecipeFault, match=rf"adapter\.targets: no linear layer matches 'stack\.\*\.qvk'; there are {names}"
    ):
        adapt(small(), Adapter(targets=("stack.*.out", "stack.*.qvk")))
    kind: Any = settings_of("models", "decoder")
    without = kind(
        d_model=8,
        n_layers=1,
        n_heads=1,
        d_ff=0,
        attention=settings_of("attention", "window")(projections=False),
        positions="none",
    ).build(20, 8)
    with pytest.raises(RecipeFault, match=r"no linear layer matches 'stack\.\*'; there are none"):
        adapt(without, Adapter())
    assert adapt(small(), Adapter(targets=("stack.layers.1.*.qkv",))) == ["stack.layers.1.self_attn.part.qkv"]
    with pytest.raises(ValueError, match="has an adapter already"):
        adapt(learnt(), SETTINGS)


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_the_lean_step_reads_the_adapted_weights(positions: str) -> None:
    model = learnt(positions=positions, bias=True)
    assert FastDecoder.fits(model)
    text, following = some_ids(1, 5)[0].tolist(), some_ids(6, 1, seed=4)
    expected = uncached(model, text, following[:, 0].tolist(), model.context)
    with torch.no_grad():
        assert_close(cached(model, [text], following, model.context)[:, 0], expected, rtol=0, atol=1e-8)
        merge(model)
        assert_close(uncached(model, text, following[:, 0].tolist(), model.context), expected, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
def test_it_can_be_compiled_with_its_gradients() -> None:
    model = small(n_layers=1)
    adapt(model, Adapter(rank=2))
    torch.manual_seed(0)
    for p in model.parameters():
        p.data.normal_()

    def scores(ids: Tensor) -> Tensor:
        return model.logits(model(Tokens(ids)).y)

    found = []
    for forward in (scores, torch.compile(scores, backend="aot_eager", fullgraph=True)):
        model.zero_grad()
        y = forward(IDS)
        y.sin().sum().backward()
        found.append({"y": y.detach()} | {name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert len(found[0]) == 1 + 2 * (3 + 1 + 2 + 1)  # q, k, v; out; gate, value; out
    torch.testing.assert_close(found[0], found[1])


def test_muon_leaves_the_narrow_matrices_to_adamw_at_its_own_rate() -> None:
    model = small()
    adapt(model, SETTINGS)
    assert {role for name, role in roles_of(model).items() if ".weight.0." in name} == {"adapter"}
    optimizer = build(muon.Settings(lr=0.02, head_lr=0.001, weight_decay=0.0), model)
    loss_of(model).backward()
    name = "stack.layers.1.self_attn.part.out.parametrizations.weight.0.B.0"
    optimizer.step(0.02)
    moved = model.get_parameter(name).detach().abs()
    assert moved.max().item() == pytest.approx(0.001, rel=1e-3)  # AdamW's first step is the rate itself
    assert set(optimizer.state_tensors()) == {"step"} | {
        f"{name}.{moment}"
        for name, p in model.named_parameters()
        if p.requires_grad
        for moment in ("exp_avg", "exp_avg_sq")
    }
