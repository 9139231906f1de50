"""SRU and SRU++: a loop over the formulas of the papers, limits of the gates, gradients, and the view of the gates."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import figures
import numpy as np
import pytest
import torch
from commands import EXACT, TINY, minitf, refused, trained
from test_generation_fast_decoder import assert_goes_on_as_the_whole, assert_needs_constant_memory
from test_models import model_of
from torch import Tensor

from mini_tf.inspection import ViewOutput
from mini_tf.inspection._texts import capture_heads, tokenize_texts
from mini_tf.nn.mixer import AttentionDims, LayerSpec, Mixer, carry
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.nn.tokens import Tokens
from mini_tf.papers.sru.attention import sru, srupp
from mini_tf.papers.sru.inspection import gates as gates_view
from mini_tf.papers.sru.recurrence import recur
from mini_tf.system.errors import UsageFault
from mini_tf.testing.tiny.mixers import positions_of_layout, random_tensor
from mini_tf.trained.opening import open_trained

D = 6
DIMS = AttentionDims(d_model=D, d_memory=D, n_heads=2, n_kv_heads=2, d_k=3, d_v=3)
B, L = 3, 11


def tiny_mixer(settings: sru.Settings | srupp.Settings, **fixed: float) -> Mixer:
    """In float64, with large weights; fixed: values of parameters."""
    torch.manual_seed(0)
    mixer: Mixer = settings.build(DIMS, LayerSpec(0, 1)).double().eval()
    for name, parameter in mixer.named_parameters():
        parameter.data.normal_(0, 0.7)
        if (short := name.rpartition(".")[2]) in fixed:
            parameter.data.fill_(fixed[short])
    return mixer


def mix(mixer: Mixer, x: Tensor, positions: TokenPositions | None = None) -> Tensor:
    positions = positions or TokenPositions(x.shape[1])
    return mixer(x, x, Visibility(True, positions, positions)).y  # type: ignore[no-any-return]


def loop(mixer: Mixer, u: Tensor, x: Tensor, segments: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The formulas, token by token; u (B, L, 3 D): outputs, forget gates and reset gates."""
    p = {name.rpartition(".")[2]: parameter for name, parameter in mixer.named_parameters() if "recurrence" in name}
    v, w = (p.get(name, torch.zeros(D, dtype=torch.float64)) for name in ("forget_state", "reset_state"))
    alpha, outputs = math.sqrt(1 + 2 * math.exp(-2.0)), []
    for b in range(len(x)):
        c = torch.zeros(D, dtype=torch.float64)
        for t in range(x.shape[1]):
            if segments is not None and t and segments[b, t] != segments[b, t - 1]:
                c = torch.zeros(D, dtype=torch.float64)
            candidate, forget, reset = u[b, t].split(D)
            f, r = torch.sigmoid(forget + v * c + p["forget_bias"]), torch.sigmoid(reset + w * c + p["reset_bias"])
            c = f * c + (1 - f) * candidate
            outputs.append(torch.stack([r * c + (1 - r) * alpha * x[b, t], f, r]))
    return torch.stack(outputs, dim=1).view(3, *x.shape).unbind()  # type: ignore[return-value]


def gates_of(mixer: Mixer, x: Tensor, positions: TokenPositions) -> tuple[Tensor, Tensor]:
    gates = mixer.observe(x, x, Visibility(True, positions, positions))
    return gates["forget"], gates["reset"]


@pytest.mark.parametrize("state_gates", [True, False])
@pytest.mark.parametrize("layout", ["plain", "packed"])
def test_sru_is_the_loop_of_the_paper(layout: str, state_gates: bool) -> None:
    mixer, x, positions = (
        tiny_mixer(sru.Settings(state_gates=state_gates)),
        random_tensor(B, L, D),
        positions_of_layout(layout),
    )  # type: ignore[arg-type]
    expected, *gates = loop(mixer, x @ mixer.get_parameter("project.weight").T, x, positions.segments)
    real = torch.ones(B, L, dtype=torch.bool) if positions.segments is None else positions.segments != 0
    torch.testing.assert_close(mix(mixer, x, positions)[real], expected[real], rtol=0, atol=1e-12)
    for gate, of_loop in zip(gates_of(mixer, x, positions), gates, strict=True):
        torch.testing.assert_close(gate[real], of_loop[real], rtol=0, atol=1e-12)


@pytest.mark.parametrize("attention", [True, False])
def test_srupp_is_the_loop_behind_an_attention_head(attention: bool) -> None:
    mixer, x = tiny_mixer(srupp.Settings(d_proj=4, attention=attention)), random_tensor(B, L, D)
    p = dict(mixer.named_parameters())
    q = x @ p["query.weight"].T
    mixed = q
    if attention:
        w_k, w_v = p["key_value.weight"].split(4)
        attended = []
        for b in range(B):
            for t in range(L):
                weights = (q[b, : t + 1] @ w_k.T @ q[b, t] / 2).softmax(0)
                attended.append(weights @ (q[b, : t + 1] @ w_v.T))
        mixed = q + p["alpha"] * torch.stack(attended).view_as(q)
    centered = mixed - mixed.mean(-1, keepdim=True)
    normed = centered / (centered.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * p["norm.weight"] + p["norm.bias"]
    expected, *gates = loop(mixer, normed @ p["project.weight"].T, x)
    torch.testing.assert_close(mix(mixer, x), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(gates_of(mixer, x, TokenPositions(L)), tuple(gates), rtol=0, atol=1e-10)


def test_without_alpha_srupp_is_a_projected_sru_that_only_alpha_can_change() -> None:
    settings, x = srupp.Settings(d_proj=4), random_tensor(B, L, D)
    with_head, without = (
        tiny_mixer(settings, alpha=0.0),
        settings.model_copy(update={"attention": False}).build(DIMS, LayerSpec(0, 1)),
    )
    without.double().load_state_dict(
        {name: t for name, t in with_head.state_dict().items() if not name.startswith(("alpha", "key_value"))}
    )
    assert torch.equal(mix(with_head, x), mix(without, x))
    (mix(with_head, x) * random_tensor(B, L, D, seed=2)).sum().backward()
    gradient = with_head.get_parameter("key_value.weight").grad
    assert gradient is not None
    assert not gradient.any()
    assert with_head.get_parameter("alpha").grad
    assert srupp.Settings().build(DIMS, LayerSpec(0, 1)).get_parameter("alpha") == 0


@pytest.mark.parametrize("kind", [sru, srupp])
def test_fresh_gates_have_their_biases_and_keep_the_variance(kind: ModuleType) -> None:
    """A highway bias b scales the input by sqrt(1 + 2 exp(b)); gates without inputs are sigmoids of biases."""
    mixer = kind.Settings(forget_bias=1.5, highway_bias=-1.0).build(DIMS, LayerSpec(0, 1))
    x = torch.zeros(1, 2, D)
    forget, reset = gates_of(mixer, x, TokenPositions(2))
    torch.testing.assert_close(forget, torch.full_like(x, 1.5).sigmoid())
    torch.testing.assert_close(reset, torch.full_like(x, -1.0).sigmoid())
    assert mixer.recurrence.alpha == pytest.approx(math.sqrt(1 + 2 / math.e))
    torch.manual_seed(0)
    wide = replace(DIMS, d_model=400)
    for weights in (
        getattr(kind.Settings().build(wide, LayerSpec(0, 1)).recurrence, f"{gate}_state")
        for gate in ("forget", "reset")
    ):
        assert -1 <= weights.min() < -0.9 < 0.9 < weights.max() <= 1
        assert weights.mean().abs() < 4 / math.sqrt(3 * 400)


@pytest.mark.parametrize(("d_model", "d_proj", "width"), [(12, None, 3), (3, None, 1), (12, 5, 5)])
def test_queries_of_srupp_are_a_quarter_as_wide_as_the_model(d_model: int, d_proj: int | None, width: int) -> None:
    mixer = srupp.Settings(d_proj=d_proj).build(replace(DIMS, d_model=d_model), LayerSpec(0, 1))
    assert mixer.get_parameter("query.weight").shape == (width, d_model)


def test_limits_of_the_gates() -> None:
    """Kept for ever, replaced at once, and passed by."""
    x = random_tensor(B, L, D)
    u = x @ tiny_mixer(sru.Settings(state_gates=False)).get_parameter("project.weight").T
    kept = tiny_mixer(sru.Settings(state_gates=False), forget_bias=60.0, reset_bias=60.0)
    torch.testing.assert_close(mix(kept, x), torch.zeros_like(x), rtol=0, atol=1e-12)
    replaced = tiny_mixer(sru.Settings(state_gates=False), forget_bias=-60.0, reset_bias=60.0)
    torch.testing.assert_close(mix(replaced, x), u[..., :D], rtol=0, atol=1e-12)
    passed = tiny_mixer(sru.Settings(state_gates=False), reset_bias=-60.0)
    torch.testing.assert_close(mix(passed, x), math.sqrt(1 + 2 * math.exp(-2)) * x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("state_gates", [True, False])
def test_gradients_are_numerically_right(state_gates: bool, length: int) -> None:
    a, x, start = (
        random_tensor(2, *shape, 3, seed=n).requires_grad_() for n, shape in enumerate(((length,), (length,), ()))
    )
    v = random_tensor(3, seed=4).requires_grad_() if state_gates else None
    restart = torch.tensor([[False] * length, [n % 3 == 1 for n in range(length)]])
    assert torch.autograd.gradcheck(recur, (a, x, v, start, restart))


@pytest.mark.parametrize("bias", [-300.0, 300.0])
def test_nothing_overflows_where_a_gate_is_shut_for_long(bias: float) -> None:
    a, x, start = torch.full((1, 5000, 2), bias), torch.full((1, 5000, 2), 3.0), torch.ones(1, 2)
    for v in (None, torch.ones(2)):
        states = recur(a.requires_grad_(), x.requires_grad_(), v, start)
        gradients = torch.autograd.grad(states.sum(), (a, x))
        assert torch.equal(states, torch.full_like(states, 1.0 if bias > 0 else 3.0))
        assert all(gradient.isfinite().all() for gradient in gradients)


def test_in_training_keys_and_values_learn_from_the_memory() -> None:
    mixer, x = tiny_mixer(srupp.Settings(d_proj=4, memory_length=3)).train(), random_tensor(B, 8, D)
    first, second = TokenPositions(5), TokenPositions(3, 5)
    before = mixer(x[:, :5], x[:, :5], Visibility(True, first, first), mixer.start(B))
    state = carry(mixer, before.state)
    assert state["x"].shape == (B, 3, 4)
    after = mixer(x[:, 5:], x[:, 5:], Visibility(True, second, second), state).y
    gradient = torch.autograd.grad(after[:, 0].sum(), state["x"])[0]
    assert gradient.any()
    mixer.memory_length = 8
    whole = mixer(x[:, 5:], x[:, 5:], Visibility(True, second, second), carry(mixer, before.state)).y
    torch.testing.assert_close(whole, mix(mixer, x)[:, 5:], rtol=0, atol=1e-10)


STREAM = (
    *EXACT,
    "model.positions=none",
    "data.pack=concat",
    "train.stream=true",
    "train.context=16",
    "train.batch_size=3",
)


def test_gates_are_shown_by_token_and_layer(tmp_path: Path) -> None:
    layers = "model.attention=[{kind: sru, state_gates: false}, {kind: srupp, memory_length: 8}]"
    run = trained(tmp_path / "run", *STREAM, layers, "model.n_layers=2", "train.steps=4", "log.every_steps=1")
    result, figure = figures.pictured("inspect", "gates", run, "ab", "c")
    panels = figures.maps(figure)
    assert [panel.title for panel in panels] == [f"text {n}, {gate}" for n in (1, 2) for gate in ("forget", "reset")]
    for panel, (text, gate) in zip(
        panels, ((text, gate) for text in result["texts"] for gate in ("forget", "reset")), strict=True
    ):
        below = dict(enumerate(text["tokens"])) if gate == "reset" else {}
        assert (panel.rows, panel.columns) == ({0: "layer 0", 1: "layer 1"}, below)
        assert panel.values.tolist() == [layer[gate] for layer in text["layers"]]
        assert panel.colors == ("Blues", 0, 1)
    opened = open_trained(run, device="cpu")
    gates_view.Settings(run="", texts=("ab",)).view(opened, ViewOutput())
    assert not figures.has_hooks(opened.model)
    gates, text = list[tuple[np.ndarray, ...]](), result["texts"][0]
    for mixer in opened.model.mixers():
        mixer.register_forward_pre_hook(
            lambda mixer, inputs: gates.append(
                tuple(gate[0].detach().numpy() for gate in mixer.observe(*inputs[:3]).values())
            )
        )
    opened.model(
        Tokens(torch.tensor([[opened.tokenizer.vocabulary.separator, *map(int, opened.tokenizer.encode("ab"))]]))
    )
    for layer, (forget, reset) in zip(text["layers"], gates, strict=True):
        assert layer["forget"] == pytest.approx(forget.mean(axis=1), abs=1e-6)
        assert layer["reset"] == pytest.approx(reset.mean(axis=1), abs=1e-6)
        spread = np.sort((1 / (1 - forget)).ravel())
        for share, constant in layer["time_constants"].items():
            assert np.interp(float(share) * (spread.size - 1), np.arange(spread.size), spread) == pytest.approx(
                constant, rel=1e-4
            )
        assert layer["forget_histogram"] == [int(((forget * 10).astype(int) == bin).sum()) for bin in range(10)]
        assert layer["reset_histogram"] == [int(((reset * 10).astype(int) == bin).sum()) for bin in range(10)]
    assert [step for step, _ in result["alpha"]["all"]] == [1, 2, 3, 4]
    assert [len(text["layers"]) for text in result["texts"]] == [2, 2]
    tokens = result["texts"][0]["tokens"]
    for layer in result["texts"][0]["layers"]:
        assert len(layer["forget"]) == len(layer["reset"]) == len(tokens)
        assert sum(layer["forget_histogram"]) % len(tokens) == 0
        constants = list(layer["time_constants"].values())
        assert constants == sorted(constants)
        assert constants[0] >= 1
    shown = minitf("inspect", "gates", run, "ab", "-o", tmp_path / "gates.png", "-o", tmp_path / "gates.json")
    assert shown.exit_code == 0, shown.stderr
    only = trained(tmp_path / "only", *STREAM, "model.attention=sru", "train.steps=1")
    refused(
        minitf("inspect", "attention", only, "ab"),
        "only has no attention heads: its layers are sru; see `minitf inspect --help`",
        exit_code=2,
    )
    rows = figures.table_in(minitf("inspect", "gates", run, "ab").stdout, "layer")
    for row, layer in zip(
        rows[:2], json.loads((tmp_path / "gates.json").read_text())["texts"][0]["layers"], strict=True
    ):
        means = [f"{np.mean(layer[gate]):.3f}" for gate in ("forget", "reset")]
        assert row[:6] == [
            str(layer["layer"]),
            *means,
            *(f"{constant:.1f}" for constant in layer["time_constants"].values()),
        ]
    assert float(rows[1][6]) == pytest.approx(result["alpha"]["all"][-1][1], abs=1e-3)


@pytest.mark.parametrize(
    ("attention", "streams"),
    [("{kind: srupp}", False), ("{kind: srupp, attention: false}", True), ("{kind: srupp, memory_length: 4}", True)],
)
def test_a_stream_needs_a_memory_if_there_is_attention(attention: str, streams: bool) -> None:
    done = minitf("recipe", "check", TINY, *STREAM, f"model.attention={attention}")
    assert done.exit_code == (0 if streams else 3)
    assert streams or "srupp cannot carry its state" in done.stderr


def test_a_model_without_gates_has_none_to_show_nor_are_they_suggested(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", *EXACT, "train.steps=1")
    refused(minitf("inspect", "gates", run, "ab"), "run has no gates: its layers are softmax", exit_code=2)
    opened = open_trained(run, device="cpu")
    for mixer in opened.model.mixers():
        mixer.has_heads = False
    with pytest.raises(UsageFault, match="run has no attention heads: its layers are softmax") as fault:
        capture_heads(opened, tokenize_texts(opened, "ab"))
    assert fault.value.hint is None


def test_a_bidirectional_model_cannot_be_recurrent() -> None:
    done = minitf("recipe", "check", "bert-nano", "model.attention=sru", "model.positions=none")
    refused(done, "sru attention does not support bidirectional attention", exit_code=3)


@pytest.mark.parametrize(
    "settings", [{}, {"residual": False, "norm_place": "post"}, {"d_ff": 0, "dropout_rate": 0.5}], ids=str
)
def test_recurrences_continue_as_one_pass(settings: dict[str, Any]) -> None:
    """Beside attention with a cache."""
    model = model_of("decoder", ("sru", "softmax"), "none", n_layers=3, **settings)
    assert_goes_on_as_the_whole(model, (5, 5))
    assert_goes_on_as_the_whole(model, (3, 20, 1))


def test_a_recurrence_needs_constant_memory() -> None:
    assert_needs_constant_memory(model_of("decoder", ("sru",), "none", n_layers=2))
