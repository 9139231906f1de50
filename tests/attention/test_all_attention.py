"""All-attention: persistent vectors against loops in float64, limits, gradients, and what is trained, converted and
shown.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import EXACT, minitf, refused, trained
from test_models import model_of, some_ids
from torch import Tensor

from mini_tf.attention import _all_attention, softmax
from mini_tf.nn.layers import attention_kernels
from mini_tf.nn.lora import adapt, merge
from mini_tf.nn.mixer import AttentionDims, LayerSpec, carry
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.nn.tokens import Tokens
from mini_tf.optimizers import muon
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.sections import Adapter
from mini_tf.testing.tiny.mixers import EXACT as CLOSE
from mini_tf.testing.tiny.mixers import TinyMixer, positions_of_layout, random_tensor
from mini_tf.trained.opening import load_trained
from mini_tf.training.optimizer import build

DIMS = AttentionDims(d_model=12, d_memory=12, n_heads=4, n_kv_heads=2, d_k=6, d_v=4)
B, L, N = 3, 11, 5


def plain(causal: bool = True) -> Visibility:
    return Visibility(causal, TokenPositions(L), TokenPositions(L))


def vectors(mixer: softmax.Softmax) -> tuple[Tensor, Tensor]:
    """Keys (G, N, K) and values (G, N, V) by the paper's scaling."""
    p = dict(mixer.named_parameters())
    return math.sqrt(6) * p["persistent.keys.weight"].view(2, N, 6), math.sqrt(N) * p["persistent.values.weight"].view(
        2, N, 4
    )


@pytest.mark.parametrize(
    ("qk_norm", "positions"),
    [(False, "none"), (True, "alibi"), (False, "rotary"), (True, "rotary"), ("weight", "rotary")],
)
def test_one_softmax_over_tokens_and_persistent_keys_without_positions(positions: str, qk_norm: Any) -> None:
    encoding = settings_of("positions", positions)()
    mixer: Any = TinyMixer(softmax.Settings(n_persistent=N, qk_norm=qk_norm), encoding).mixer  # type: ignore[arg-type]
    (keys, values), x, weight, bias = vectors(mixer), random_tensor(B, L, 12), mixer.qkv.weight, mixer.qkv.bias
    built = encoding.build(12, 4, 6, 64).double()  # type: ignore[attr-defined]

    of_queries, of_keys = torch.ones(2, 6, dtype=torch.float64)
    if qk_norm == "weight":
        of_queries, of_keys = (norm.data.normal_() for norm in (mixer.q_norm, mixer.k_norm))

    def normed(part: Tensor, weight: Tensor) -> Tensor:
        return part / (part.square().mean() + torch.finfo(part.dtype).eps).sqrt() * weight if qk_norm else part

    def turned(part: Tensor, position: int) -> Tensor:
        if "rotary" not in built.applies_to:
            return part
        turned: Tensor = built.rotate(part.view(1, 1, 1, 6), TokenPositions(1, position)).view(6)
        return turned

    expected = torch.zeros(B, L, 16, dtype=torch.float64)
    for b in range(B):
        q, k, v = (x[b] @ weight.T + bias).split([24, 12, 8], dim=1)
        for h in range(4):
            g = h // 2
            ks, vs = k[:, 6 * g : 6 * g + 6], v[:, 4 * g : 4 * g + 4]
            for i in range(L):
                query = normed(q[i, 6 * h : 6 * h + 6], of_queries)
                scores = [query @ normed(row, of_keys) / math.sqrt(6) for row in keys[g]]
                for j in range(i + 1):
                    slope = 2.0 ** (-2 * (h + 1)) if positions == "alibi" else 0.0
                    key = turned(normed(ks[j], of_keys), j)
                    scores.append(turned(query, i) @ key / math.sqrt(6) - slope * (i - j))
                p = torch.stack(scores).softmax(0)
                expected[b, i, 4 * h : 4 * h + 4] = p[:N] @ values[g] + p[N:] @ vs[: i + 1]
    expected = expected @ mixer.out.weight.T + mixer.out.bias
    torch.testing.assert_close(mixer(x, x, plain()).y, expected, **CLOSE)
    explicit = mixer.explicit(x, x, plain())
    assert (explicit.lead, explicit.weights.shape, explicit.values.shape) == (N, (B, 4, L, N + L), (B, 4, N + L, 4))
    torch.testing.assert_close(explicit.weights.sum(-1), torch.ones(B, 4, L, dtype=torch.float64), **CLOSE)


@pytest.mark.parametrize("positions", ["rotary", "alibi"])
@pytest.mark.parametrize("dropout_rate", [0.0, 1e-12])
def test_a_shift_of_all_positions_changes_nothing(positions: str, dropout_rate: float) -> None:
    """With and without the kernel that merges; persistent vectors have no distance from a token."""
    settings = softmax.Settings(n_persistent=N, dropout_rate=dropout_rate)
    tiny, outputs = TinyMixer(settings, settings_of("positions", positions)()), []  # type: ignore[arg-type]
    tiny.mixer.train()
    for start in (0, 1000):
        token_positions = TokenPositions(L, start)
        outputs.append(tiny.mix(tiny.x, Visibility(True, token_positions, token_positions)))
    torch.testing.assert_close(*outputs, **CLOSE)


@pytest.mark.parametrize("attention", ["self", "cross"])
def test_without_visible_tokens_it_is_a_softmax_feed_forward_layer(attention: Any) -> None:
    mixer: Any = TinyMixer(softmax.Settings(n_persistent=N), attention=attention).mixer
    x, (keys, values) = random_tensor(B, L, 12), vectors(mixer)
    padding = TokenPositions.packed(torch.zeros(B, L, dtype=torch.long))
    y = mixer(x, x, Visibility(False, padding, padding)).y
    linear = mixer.q if attention == "cross" else mixer.qkv
    q = (x @ linear.weight[:24].T + linear.bias[:24]).unflatten(2, (4, 6))
    parts = [(q[:, :, h] @ keys[h // 2].T / math.sqrt(6)).softmax(-1) @ values[h // 2] for h in range(4)]
    torch.testing.assert_close(y, torch.cat(parts, dim=2) @ mixer.out.weight.T + mixer.out.bias, **CLOSE)


def test_without_persistent_vectors_nothing_changes_and_with_keys_that_get_no_weight_neither() -> None:
    torch.manual_seed(0)
    without = softmax.Settings(n_persistent=0).build(DIMS, LayerSpec(0, 1)).double().eval()
    assert set(dict(without.named_parameters())) == {"qkv.weight", "out.weight"}
    mixer = softmax.Settings(n_persistent=N).build(DIMS, LayerSpec(0, 1)).double().eval()
    mixer.load_state_dict(without.state_dict(), strict=False)
    x = random_tensor(B, L, 12)
    with torch.no_grad():
        mixer.qkv.weight[:24] = without.qkv.weight[:24] = 0.0  # every score of a token is 0
        mixer.qkv.bias = without.qkv.bias = torch.nn.Parameter(torch.ones(44, dtype=torch.float64))
        mixer.persistent.keys.weight.fill_(-1e4)
        mixer.persistent.values.weight.fill_(1e4)
    for causal in (True, False):
        assert torch.equal(mixer(x, x, plain(causal)).y, without(x, x, plain(causal)).y)


def test_they_are_matrices_of_a_head_each_as_those_of_a_feed_forward_layer() -> None:
    """In initialization, role in the optimizer, and adapters, which leave nothing behind when merged."""
    model = model_of("decoder", attention=(softmax.Settings(n_persistent=200),), d_ff=0, n_layers=1, init_std=0.03)
    names = [f"stack.layers.0.self_attn.part.persistent.{part}" for part in ("keys", "values")]
    assert [model.get_parameter(f"{name}.weight").std().item() for name in names] == pytest.approx(
        [0.03, 0.03], rel=0.1
    )
    parameters = build(muon.Settings(), model).parameters
    assert [(parameters[f"{name}.weight"].role, parameters[f"{name}.weight"].split_sizes) for name in names] == [
        ("matrix", (200, 200))
    ] * 2
    assert set(names) <= set(adapt(model, Adapter(rank=2, alpha=4)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(random_tensor(*parameter.shape), alpha=0.1 * parameter.requires_grad)
    ids = Tokens(some_ids(2, 9))
    before = model.logits(model(ids).y)
    merge(model)
    assert torch.equal(model.logits(model(ids).y), before)


@pytest.mark.parametrize("mask", ["none", "causal", "bool", "bias"])
def test_two_calls_of_the_kernel_have_the_outputs_and_gradients_of_one_softmax(mask: str) -> None:
    """Queries for the shared keys of their own; with a mask, queries without visible keys."""
    shapes = ((2, 3, 4, 10), (2, 3, 4, 5), (2, 3, 4, 3), (1, 3, 2, 5), (1, 3, 2, 3))
    q, k, v, shared_k, shared_v = inputs = [
        random_tensor(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)
    ]
    bias, given = torch.zeros(2, 1, 4, 4).double(), None
    if mask == "causal":
        bias = torch.zeros(4, 4).double().masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf)
    elif mask != "none":
        given = torch.tensor([[[[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]]]] * 2).bool()
        bias = bias.masked_fill(~given, -torch.inf)
        if mask == "bias":
            given = bias = bias + random_tensor(2, 3, 4, 4, seed=7)
    weights = torch.cat([0.4 * q[..., 5:] @ shared_k.mT, 0.4 * q[..., :5] @ k.mT + bias], dim=-1).softmax(-1)
    expected = weights[..., :2] @ shared_v + weights[..., 2:] @ v
    actual = _all_attention.persistent_attention(
        q, k, v, given, (shared_k, shared_v), 0.4, 0.0, causal=mask == "causal"
    )
    torch.testing.assert_close(actual, expected, **CLOSE)
    weight = random_tensor(2, 3, 4, 3, seed=9)
    torch.testing.assert_close(*(torch.autograd.grad((y * weight).sum(), inputs) for y in (actual, expected)), **CLOSE)


@pytest.mark.parametrize(("rows", "queries", "keys"), [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_empty_tensors_have_empty_outputs_and_without_tokens_persistent_keys_have_all_weight(
    rows: int, queries: int, keys: int
) -> None:
    """The kernel of a CPU divides by these sizes, which would end the process."""
    q, k, v = random_tensor(rows, 4, queries, 12), random_tensor(rows, 4, keys, 6), random_tensor(rows, 4, keys, 4)
    shared_k, shared_v = random_tensor(1, 4, N, 6), random_tensor(1, 4, N, 4)
    leaves = [t.requires_grad_() for t in (q, k, v, shared_k, shared_v)]
    actual = _all_attention.persistent_attention(q, k, v, None, (shared_k, shared_v), 0.4, 0.0)
    assert actual.shape == (rows, 4, queries, 4)
    if keys == 0:
        torch.testing.assert_close(
            actual, (0.4 * q[..., 6:] @ shared_k.transpose(-1, -2)).softmax(-1) @ shared_v, **CLOSE
        )
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(actual.sum(), leaves))


def test_scores_of_thousands_do_not_overflow() -> None:
    mixer: Any = TinyMixer(softmax.Settings(n_persistent=N)).mixer.float()
    x = 1e3 * random_tensor(B, L, 12).float().requires_grad_()
    explicit = mixer.explicit(x, x, plain())
    assert explicit.weights.max() == 1.0
    y = mixer(x, x, plain()).y
    torch.testing.assert_close(y, mixer.join(explicit.weights @ explicit.values, x, plain()).y, rtol=1e-5, atol=1e-2)
    y.sum().backward()
    assert all(p.grad.isfinite().all() for p in mixer.parameters())


@pytest.mark.parametrize("layout", ["plain", "packed"])
@pytest.mark.parametrize("positions", ["rotary", "t5"])
def test_large_masks_in_blocks_have_the_same_outputs_and_gradients(
    layout: Any, positions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token_positions = positions_of_layout(layout)
    found = []
    for elements in (attention_kernels.MASK_ELEMENTS, 150):
        monkeypatch.setattr(attention_kernels, "MASK_ELEMENTS", elements)
        tiny = TinyMixer(softmax.Settings(n_persistent=N), settings_of("positions", positions)())  # type: ignore[arg-type]
        y = tiny.mix(tiny.x, Visibility(True, token_positions, token_positions))
        (y * random_tensor(*y.shape, seed=2)).sum().backward()
        found.append([y.detach(), *(p.grad for p in tiny.mixer.parameters())])
    torch.testing.assert_close(*found, **CLOSE)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("positions", ["none", "alibi"])
def test_weights_of_persistent_vectors_are_dropped_too_in_training_alone(causal: bool, positions: str) -> None:
    """Values that are rows of the identity give the weights themselves."""
    dims = AttentionDims(d_model=12, d_memory=12, n_heads=4, n_kv_heads=2, d_k=6, d_v=N + L)
    encoding = settings_of("positions", positions)()
    mixer: Any = TinyMixer(softmax.Settings(n_persistent=N, dropout_rate=0.5), encoding, dims=dims).mixer  # type: ignore[arg-type]
    identity = torch.eye(N + L).double()
    mixer.persistent.values.weight.data.copy_(identity[:N].repeat(2, 1) / math.sqrt(N))
    q, k, v = random_tensor(B, 4, L, 6), random_tensor(B, 2, L, 6, seed=2), identity[N:].expand(B, 2, L, N + L)
    whole, some = (mixer.train(training).attend(q, k, v, plain(causal)) for training in (False, True))
    torch.testing.assert_close(whole.sum(-1), torch.ones(B, 4, L).double(), **CLOSE)
    kept = some != 0
    torch.testing.assert_close(some, torch.where(kept, 2 * whole, 0.0), **CLOSE)
    for columns in (slice(N), slice(N, None)):
        assert 0.3 < kept[..., columns].sum() / (whole[..., columns] != 0).sum() < 0.7


@pytest.mark.parametrize(("device", "dropout_rate", "largest"), [("cpu", 0.0, 0), ("cpu", 0.1, 22), ("meta", 0.0, 22)])
def test_beside_persistent_keys_a_causal_mask_is_made_in_blocks_except_without_dropout_on_a_cpu(
    device: str, dropout_rate: float, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def recorded(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool = False, **_: Any) -> Tensor:
        assert causal == (mask is None)
        sizes.append(0 if mask is None else mask.numel())
        return q[..., :4]

    monkeypatch.setattr(_all_attention, "persistent_attention", recorded)
    monkeypatch.setattr(attention_kernels, "MASK_ELEMENTS", 2 * L)
    q, k, v = (torch.zeros(B, 4, L, width, device=device) for width in (6, 6, 4))
    shared = tuple(torch.zeros(4, N, width, device=device) for width in (6, 4))
    assert _all_attention.attend_to_all(q, k, v, shared, plain(), 0.4, None, dropout_rate).shape == (B, 4, L, 4)  # type: ignore[arg-type]
    assert max(sizes) == largest


def test_half_precision_is_close_to_full() -> None:
    torch.manual_seed(0)
    mixer, x = softmax.Settings(n_persistent=N).build(DIMS, LayerSpec(0, 1)), random_tensor(B, L, 12).float()
    expected = mixer(x, x, plain()).y
    for enabled in (True, False):
        with torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(enabled):
            y = mixer(x, x, plain()).y
        assert y.dtype == torch.bfloat16
        torch.testing.assert_close(y.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("cache", ["inputs", "keys"])
def test_a_memory_of_earlier_tokens_stands_beside_persistent_vectors(cache: Any) -> None:
    """As in one pass over the memory and the row; only tokens are kept."""
    settings = softmax.Settings(n_persistent=N, memory_length=4, memory_cache=cache)
    mixer, x, first = (
        TinyMixer(settings, settings_of("positions", "rotary")()).mixer.train(),
        random_tensor(B, L, 12),
        0,
    )  # type: ignore[arg-type]
    state: State | None = mixer.start(B)
    for size in (5, 1, 5):
        token_positions, block = TokenPositions(size, first), x[:, first : first + size]
        mixed = mixer(block, block, Visibility(True, token_positions, token_positions), state)
        seen = max(0, first - 4)
        whole, rows = TokenPositions(first + size - seen, seen), x[:, seen : first + size]
        expected = mixer(rows, rows, Visibility(True, whole, whole)).y[:, first - seen :]
        torch.testing.assert_close(mixed.y, expected, **CLOSE)
        state, first = carry(mixer, mixed.state), first + size
    assert state is not None
    assert (state["x"].shape[1] if cache == "inputs" else state["k"].shape[2]) == 4


SHAPE = (
    "model={kind: decoder, d_model: 32, n_layers: 2, n_heads: 2, d_ff: 0, positions: alibi, attention: {kind: softmax,"
    " n_persistent: 6}}"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("all-attention") / "run", *EXACT, SHAPE, "train.steps=4")


def test_maps_have_columns_of_tokens_only_and_say_what_their_rows_sum_to(run: Path) -> None:
    result = json.loads(minitf("inspect", "attention", run, "Once upon", "--json", "--full").stdout)["result"]
    [sample] = result["samples"]
    for head in sample["heads"]:
        sums = torch.tensor(head["matrix"]).sum(-1)
        assert len(head["matrix"]) == len(head["matrix"][0]) == len(sample["tokens"])
        assert (sums < 0.9).all()
        assert head["row_sum"] == pytest.approx(sums.mean().item(), abs=1e-4)
    heads = json.loads(minitf("inspect", "softmax", run, "O", "--json").stdout)["result"][
        "heads"
    ]  # one token beside six keys
    assert all(0 < head["normalised"] <= 1 for head in heads)


def test_a_conversion_adds_and_removes_them_and_keeps_the_weights(run: Path, tmp_path: Path) -> None:
    found = []
    for source, n, name in ((run, 0, "plain"), (tmp_path / "plain", 8, "more")):
        done = minitf("convert", source, f"model.attention.n_persistent={n}", "-d", tmp_path / name, "--json")
        assert done.exit_code == 0, done.stderr
        found.append(load_trained(tmp_path / name).model.weights())
    before, (plain_weights, weights) = load_trained(run).model.weights(), found
    added = {
        f"stack.layers.{i}.self_attn.part.persistent.{part}.weight" for i in range(2) for part in ("keys", "values")
    }
    assert set(before) - set(plain_weights) == set(weights) - set(plain_weights) == added
    assert all(torch.equal(weights[name], tensor) for name, tensor in plain_weights.items())
    assert all(weights[name].shape == (16, 16) and weights[name].any() for name in added)
    assert minitf("generate", tmp_path / "more", "the ", "--max-new-tokens", "3", "--greedy").exit_code == 0
    again = minitf("convert", run, "model.attention.n_persistent=7", "-d", tmp_path / "other")
    refused(again, "persistent.keys.weight is [12, 16] in run, but [14, 16] after the conversion", exit_code=3)
