"""Linear attention: random features against their expectation and variances, chunks against brute force."""

import json
import math
import os
import signal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import EXACT, TINY, minitf
from test_generation_fast_decoder import assert_goes_on_as_the_whole, assert_needs_constant_memory
from test_models import model_of
from torch import Tensor

from mini_tf.nn import token_positions
from mini_tf.nn.mixer import AttentionDims, LayerSpec, Mixer
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.papers.performer import key_sums as layer
from mini_tf.papers.performer import linear_attention as module
from mini_tf.papers.performer.attention import favor
from mini_tf.papers.performer.attention.favor import Variant, draw_projection, random_features
from mini_tf.papers.performer.key_sums import Features, linear_attention, linear_weights
from mini_tf.recipe.kinds import settings_of
from mini_tf.testing import attention, run_all
from mini_tf.testing.tiny.mixers import random_tensor
from mini_tf.trained.opening import load_trained

D = 8
DRAWS = 4000
UNBIASED: list[Variant] = ["positive", "hyperbolic", "trigonometric"]
NOT_THE_DEFAULT: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("linear", {"feature_map": "relu"}),
    "hyperbolic": ("favor", {"features": 9, "variant": "hyperbolic"}),
    "trigonometric": ("favor", {"features": 128, "variant": "trigonometric", "scale": 0.01}),
    "random relu": ("favor", {"features": 16, "variant": "relu", "qk_norm": True}),
}


@pytest.mark.parametrize(("kind", "given"), NOT_THE_DEFAULT.values(), ids=NOT_THE_DEFAULT)
def test_a_row_of_several_chunks_and_spans_keeps_the_contract(
    kind: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in (layer, module):
        monkeypatch.setattr(where, "CHUNK", 3)
    monkeypatch.setattr(token_positions, "SPAN", 5)
    cases = attention.mixer_cases(settings_of("attention", kind)(**given))  # type: ignore[arg-type]
    run_all(case for case in cases if not case.name.startswith(("a_long_row", "training")))


@cache
def projections(features: int, orthogonal: bool, raw: bool) -> Tensor:
    """DRAWS random projections, (DRAWS, features, D); raw: orthogonal rows as LAPACK returns them."""
    generator = torch.Generator().manual_seed(0)

    def drawn() -> Tensor:
        if not raw:
            return draw_projection(features, D, orthogonal, False, generator).double()
        norms = torch.randn(D, D, generator=generator, dtype=torch.float64).norm(dim=1, keepdim=True)
        return torch.linalg.qr(torch.randn(D, D, generator=generator, dtype=torch.float64))[0].T * norms

    return torch.stack([drawn() for _ in range(DRAWS)])


def estimates(
    q: Tensor, k: Tensor, variant: Variant, features: int = D, orthogonal: bool = True, raw: bool = False
) -> Tensor:
    """phi(q) . phi(k) for each of DRAWS random projections."""

    def estimate(projection: Tensor) -> Tensor:
        a, b = (random_features(x[None, None, None], projection, variant) for x in (q, k))
        return (a.values * b.values).sum() * (a.log_scale + b.log_scale).exp().squeeze()

    return torch.vmap(estimate)(projections(features, orthogonal, raw))


def sigmas(found: Tensor, expected: float) -> float:
    """Distance of the mean from the expected value, in standard errors."""
    return float((found.mean() - expected).abs() / (found.std() / math.sqrt(len(found))))


def direction(name: str) -> Tensor:
    if name == "ones":
        return torch.full((D,), D**-0.5, dtype=torch.float64)
    return torch.eye(D, dtype=torch.float64)[int(name)]


@pytest.mark.parametrize("orthogonal", [True, False])
@pytest.mark.parametrize("name", ["0", "7", "ones"])
@pytest.mark.parametrize("variant", UNBIASED)
def test_features_are_unbiased_in_every_direction(variant: Variant, name: str, orthogonal: bool) -> None:
    q, k = 1.2 * direction(name), 0.9 * direction(name)
    assert sigmas(estimates(q, k, variant, orthogonal=orthogonal), math.exp(float(q @ k))) < 4


def test_orthogonal_rows_as_lapack_returns_them_are_biased() -> None:
    """The shortcut of the published implementations fails the test above."""
    q, k = 1.2 * direction("ones"), 0.9 * direction("ones")
    assert sigmas(estimates(q, k, "positive", raw=True), math.exp(float(q @ k))) > 10


@pytest.mark.parametrize("variant", UNBIASED)
def test_variances_are_those_of_the_paper(variant: Variant) -> None:
    """Lemma 2, for independent rows; the mean of squared errors has a standard error itself."""
    x, y = (0.35 * random_tensor(D, seed=seed) for seed in (1, 2))
    m, plus, minus, kernel = D, float((x + y).square().sum()), float((x - y).square().sum()), math.exp(float(x @ y))
    positive = math.exp(plus) * kernel**2 * (1 - math.exp(-plus)) / m
    expected = {
        "positive": positive,
        "hyperbolic": (1 - math.exp(-plus)) / 2 * positive,
        "trigonometric": math.exp(plus) * kernel**-2 * (1 - math.exp(-minus)) ** 2 / (2 * m),
    }
    squares = (estimates(x, y, variant, m, orthogonal=False) - kernel) ** 2
    assert sigmas(squares, expected[variant]) < 4


def test_orthogonal_rows_are_no_worse_than_independent_ones() -> None:
    x, y = (0.5 * random_tensor(D, seed=seed) for seed in (1, 2))
    kernel = math.exp(float(x @ y))
    orthogonal, independent = (
        (estimates(x, y, "positive", orthogonal=one) - kernel).square().mean() for one in (True, False)
    )
    assert orthogonal < independent


@pytest.mark.parametrize("regularized", [False, True])
def test_rows_are_orthogonal_within_blocks(regularized: bool) -> None:
    projection = draw_projection(2 * D + 3, D, True, regularized, torch.Generator().manual_seed(3)).double()
    assert projection.shape == (2 * D + 3, D)
    for block in projection.split(D):
        products = block @ block.T
        torch.testing.assert_close(products, products.diagonal().diag(), rtol=0, atol=1e-5)
        if regularized:
            torch.testing.assert_close(
                products.diagonal(), torch.full((len(block),), float(D)).double(), rtol=0, atol=1e-5
            )


def test_many_features_give_softmax_attention() -> None:
    """The error falls with the number of features, and nearly vanishes."""
    dims = AttentionDims(d_model=16, d_memory=16, n_heads=2, n_kv_heads=2, d_k=8, d_v=8)
    x, positions = random_tensor(1, 24, 16), TokenPositions(24)
    mask = Visibility(True, positions, positions)

    def weights(kind: str, **given: Any) -> Tensor:
        torch.manual_seed(0)
        mixer: Mixer = settings_of("attention", kind)(**given).build(dims, LayerSpec(0, 1)).double().eval()  # type: ignore[attr-defined]
        with torch.no_grad():
            return mixer.explicit(x, x, mask).weights

    exact = weights("softmax")
    errors = [float((weights("favor", features=m) - exact).abs().sum(-1).mean()) for m in (16, 256, 4096)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.1


def brute_force(q: Tensor, k: Features, v: Tensor, mask: Tensor) -> Tensor:
    weights = (q @ k.values.transpose(-1, -2)) * k.log_scale.exp()[..., None, :] * mask
    return weights @ v / weights.sum(-1, keepdim=True)


def features_of(*shape: int, seed: int) -> Features:
    return Features(random_tensor(*shape, seed=seed).abs(), random_tensor(*shape[:-1], seed=seed + 1))


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("causal", [True, False])
def test_chunks_are_the_masked_formula(causal: bool, length: int) -> None:
    q, k, v = (
        random_tensor(2, 3, length, 5).abs(),
        features_of(2, 3, length, 5, seed=2),
        random_tensor(2, 3, length, 4, seed=4),
    )
    positions = TokenPositions(length)
    mask = Visibility(causal, positions, positions)
    attended, _ = linear_attention(q, k, v, mask)
    expected = brute_force(q, k, v, mask.mask(q.device)[:, None])
    torch.testing.assert_close(attended, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(linear_weights(q, k, mask) @ v, expected, rtol=1e-10, atol=1e-12)


def published_causal(q: Tensor, k: Tensor, v: Tensor, eps: float = 1e-6) -> Tensor:
    """The published causal form: keys are stabilized by the largest product of all keys, also of later ones."""
    projection = draw_projection(64, q.shape[-1], True, False, torch.Generator().manual_seed(0)).double()

    def phi(x: Tensor, dims: tuple[int, ...]) -> Tensor:
        products = x * x.shape[-1] ** -0.25 @ projection.T
        half = x.square().sum(-1, keepdim=True) * x.shape[-1] ** -0.5 / 2
        return (products - half - products.amax(dims, keepdim=True)).exp() + eps

    a, b = phi(q, (-1,)), phi(k, (-2, -1))
    weights = (a @ b.transpose(-1, -2)).tril()
    return weights @ v / weights.sum(-1, keepdim=True)


def test_one_huge_later_key_changes_nothing_before_it() -> None:
    """At the hidden level, in fp32, over several chunks; the published causal form fails the same test."""
    dims = AttentionDims(d_model=32, d_memory=32, n_heads=2, n_kv_heads=2, d_k=16, d_v=16)
    torch.manual_seed(0)
    mixer = favor.Settings(features=64).build(dims, LayerSpec(0, 1)).eval()
    length = 150
    x, positions = random_tensor(1, length, 32).float(), TokenPositions(length)
    mask = Visibility(True, positions, positions)
    changed = x.clone()
    changed[:, -1] *= 50
    with torch.no_grad():
        before, after = (mixer(one, one, mask).y for one in (x, changed))
    assert torch.equal(before[:, :-1], after[:, :-1])
    assert not torch.equal(before[:, -1], after[:, -1])
    q, k, v = (random_tensor(1, 1, 64, 16, seed=seed) for seed in (1, 2, 3))
    larger = k.clone()
    larger[..., -1, :] *= 4
    leaked = published_causal(q, k, v) - published_causal(q, larger, v)
    assert leaked[..., :-1, :].abs().max() > 0.1


def test_huge_queries_and_keys_give_finite_outputs_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """In several spans, too, whose sums nobody gets who has given no state."""
    monkeypatch.setattr(token_positions, "SPAN", 70)
    mixer = favor.Settings(features=16, scale="none").build(AttentionDims(8, 8, 1, 1, 8, 8), LayerSpec(0, 1))
    positions = TokenPositions(130)
    x = (30 * random_tensor(1, 130, 8)).float().requires_grad_()
    mixed = mixer(x, x, Visibility(True, positions, positions))
    mixed.y.square().sum().backward()
    assert mixed.state is None
    assert mixed.y.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["linear", "favor"])
@pytest.mark.parametrize("causal", [True, False])
def test_gradients_of_chunks_are_numerically_right(kind: str, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for where in (layer, module):
        monkeypatch.setattr(where, "CHUNK", 2)
    mixer = settings_of("attention", kind)().build(AttentionDims(4, 4, 2, 1, 2, 2), LayerSpec(0, 1)).double()  # type: ignore[attr-defined]
    positions = TokenPositions.packed(torch.tensor([[1, 1, 1, 2, 2, 0]]))
    mask, x = Visibility(causal, positions, positions), random_tensor(1, 6, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: mixer(x, x, mask).y[:, :5], x)


@pytest.mark.parametrize("kind", ["linear", "favor"])
def test_half_precision_differs_by_its_rounding_only(kind: str) -> None:
    """Sums are computed in fp32, so the error does not grow with the length."""
    torch.manual_seed(0)
    mixer = settings_of("attention", kind)().build(AttentionDims(32, 32, 2, 2, 16, 16), LayerSpec(0, 1)).eval()  # type: ignore[attr-defined]
    positions = TokenPositions(1000)
    x, mask = random_tensor(1, 1000, 32).float(), Visibility(True, positions, positions)
    with torch.no_grad():
        exact = mixer(x, x, mask).y
        with torch.autocast("cpu", torch.bfloat16):
            half = mixer(x, x, mask).y.float()
    assert (half - exact).norm() < 0.03 * exact.norm()


def test_the_projection_is_redrawn_by_seed_and_step_and_saved() -> None:
    dims = AttentionDims(8, 8, 1, 1, 8, 8)
    mixer = favor.Settings(features=12, redraw_every=10).build(dims, LayerSpec(0, 2))
    first = mixer.projection.clone()
    for step in (0, 1, 9, 11):
        assert not mixer.refresh(5, step)
        assert torch.equal(mixer.projection, first)
    assert mixer.refresh(5, 10), "sums of the features of the old projection are no longer valid"
    second = mixer.projection.clone()
    mixer.refresh(5, 20)
    assert not torch.equal(second, first)
    assert not torch.equal(mixer.projection, second)
    mixer.refresh(5, 10)
    assert torch.equal(mixer.projection, second)
    assert not torch.equal(favor.Settings(features=12).build(dims, LayerSpec(1, 2)).projection, first)
    other = favor.Settings(features=12).build(dims, LayerSpec(1, 2))
    other.load_state_dict(mixer.state_dict())
    assert torch.equal(other.projection, second)
    never = favor.Settings(features=12, redraw_every=0).build(dims, LayerSpec(0, 2))
    never.refresh(5, 1000)
    assert torch.equal(never.projection, first)


def test_a_run_that_was_interrupted_between_two_redraws_continues_bit_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = (
        "model={kind: decoder, d_model: 16, n_layers: 1, n_heads: 2, attention: {kind: favor, features: 8,"
        " redraw_every: 2}}"
    )
    command = ("pretrain", TINY, model, *EXACT, "train.steps=5", "log.samples=0", "-q", "-d")
    assert minitf(*command, tmp_path / "whole").exit_code == 0
    refresh = favor.Favor.refresh

    def interrupt(self: favor.Favor, seed: int, step: int) -> None:
        refresh(self, seed, step)
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(favor.Favor, "refresh", interrupt)
    assert minitf(*command, tmp_path / "parts").exit_code == 130
    monkeypatch.undo()
    assert minitf(*command, tmp_path / "parts").exit_code == 0
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


SHAPE = (
    "model={kind: decoder, d_model: 32, n_layers: 2, n_heads: 2, attention: {kind: softmax, qk_norm: true, scale: 0.3}}"
)


def test_a_converted_model_keeps_its_weights_and_predicts_nearly_as_before(tmp_path: Path) -> None:
    done = minitf("pretrain", TINY, SHAPE, *EXACT, "train.steps=4", "log.samples=0", "-d", str(tmp_path / "gpt"), "-q")
    assert done.exit_code == 0, done.stderr
    done = minitf(
        "convert", tmp_path / "gpt", "model.attention={kind: favor, features: 512}", "-d", tmp_path / "favor", "--json"
    )
    assert done.exit_code == 0, done.stderr
    before, after = (load_trained(tmp_path / name).model.weights() for name in ("gpt", "favor"))
    assert set(after) - set(before) == {f"stack.layers.{i}.self_attn.part.projection" for i in range(2)}
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    metrics = json.loads(done.stdout)["metrics"]
    assert 0 < metrics["kl"] < 0.1
    evaluated = json.loads(minitf("evaluate", tmp_path / "favor", "--json").stdout)["metrics"]
    assert evaluated["loss"] == pytest.approx(metrics["loss"], abs=1e-5)
    attention = load_trained(tmp_path / "favor").recipe.model.attention[0]  # type: ignore[attr-defined]
    assert (attention.kind, attention.qk_norm, attention.scale) == ("favor", True, 0.3)


ALL = ("linear", "softmax", "favor")


@pytest.mark.parametrize(
    ("mixers", "settings"),
    [
        *((mixers, {}) for mixers in (("favor",), ("linear",), ALL)),
        *((ALL, keys) for keys in ({"n_kv_heads": 1}, {"d_k": 10, "d_v": 4, "bias": True}, {"ngrams": (50, 60)})),
    ],
    ids=str,
)
def test_recurrent_attention_continues_as_one_pass(mixers: tuple[str, ...], settings: dict[str, Any]) -> None:
    model = model_of("decoder", mixers, "rotary", n_layers=3, **settings)
    assert_goes_on_as_the_whole(model, (5, 5))
    assert_goes_on_as_the_whole(model, (3, 20, 1))


@pytest.mark.parametrize("kind", ["linear", "favor"])
def test_recurrent_attention_needs_constant_memory(kind: str) -> None:
    assert_needs_constant_memory(model_of("decoder", (kind,), "none", n_layers=2))
