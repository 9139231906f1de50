"""Half precision under masks: gradients are finite and near those of fp32, also where a query attends to nothing.

The fused kernels of GPUs return NaN for such a query, or for its gradient. Tests without a GPU put a kernel in their
place that does the same: the formula, whose softmax over nothing is NaN.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from toys import every_mixer

from mini_tf.nn.layers import attention_kernels as fused
from mini_tf.nn.mixer import MixerSettings
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.recipe.kind_settings import Direction, directions_of
from mini_tf.testing.tiny.mixers import (
    DIMS,
    PREFIX,
    B,
    L,
    Layout,
    TinyMixer,
    positions_of_layout,
    random_tensor,
    supported_positions,
    visibility_of,
)

SELF = [
    pytest.param(settings, direction, layout, id=f"{word}-{direction}-{layout}")
    for word, settings in every_mixer().items()
    for direction in directions_of(settings.supports)
    for layout in ("plain", "packed" if "packing" in settings.supports else "padded")
]
CROSS = [pytest.param(settings, id=word) for word, settings in every_mixer().items() if "cross" in settings.supports]
HALF = [pytest.param(torch.bfloat16, 0.1, id="bf16"), pytest.param(torch.float16, 0.02, id="fp16")]
"""With the largest error of a gradient, relative to its norm in fp32."""


def kernel_of_a_gpu(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool, scale: float
) -> Tensor:
    """softmax(q k^T * scale + bias) v: NaN for a query that attends to nothing, as on a GPU."""
    scores = q @ k.transpose(-1, -2) * scale
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(dim=-1) @ v


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "ZEROS_IF_BLIND", frozenset())
    monkeypatch.setattr(F, "scaled_dot_product_attention", kernel_of_a_gpu)


Autocast = Callable[[], Any]


def results(
    tiny: TinyMixer, source: Tensor | None, visibility: Visibility, autocast: Autocast, device: str
) -> dict[str, Tensor]:
    """The output, and the gradients of the inputs and of every parameter, in fp32; source: for cross-attention."""
    mixer, x = tiny.mixer.float().to(device), tiny.x.float().to(device).requires_grad_()
    memory = x if source is None else source.float().to(device).requires_grad_()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.mul_(0.3)  # so that the attention weights are no step functions
    with autocast():
        y = mixer(x, memory, visibility).y
    (y.float() * random_tensor(*y.shape, seed=2).float().to(device)).sum().backward()
    named = {
        "y": y.detach(),
        "x": x.grad,
        "memory": memory.grad,
        **{name: p.grad for name, p in mixer.named_parameters()},
    }
    return {name: tensor.float().cpu() for name, tensor in named.items() if tensor is not None}


def assert_near(half: dict[str, Tensor], exact: dict[str, Tensor], tolerance: float) -> None:
    assert half.keys() == exact.keys()
    for name, expected in exact.items():
        assert half[name].isfinite().all(), name
        error = float((half[name] - expected).norm() / expected.norm().clamp(min=1e-3))
        assert error < tolerance, f"{name}: {error:.3f}"


def check(
    tiny: Callable[[], TinyMixer],
    source: Tensor | None,
    mask: Visibility,
    dtype: torch.dtype,
    tolerance: float,
    device: str,
) -> None:
    """Half precision against fp32, each with a new mixer, since gradients add up."""
    mask = replace(mask, queries=mask.queries.to(torch.device(device)), memory=mask.memory.to(torch.device(device)))
    exact = results(tiny(), source, mask, nullcontext, device)
    assert_near(results(tiny(), source, mask, lambda: torch.autocast(device, dtype), device), exact, tolerance)


def check_self(
    settings: MixerSettings, direction: Direction, layout: Layout, dtype: torch.dtype, tolerance: float, device: str
) -> None:
    for position in supported_positions(settings).values():
        mask = visibility_of(direction, positions_of_layout(layout), PREFIX[layout])
        check(lambda: TinyMixer(settings, position), None, mask, dtype, tolerance, device)  # noqa: B023


def check_cross(settings: MixerSettings, dtype: torch.dtype, tolerance: float, device: str) -> None:
    """The second row has an empty source, and the first queries of the third are padding."""
    source = TokenPositions.packed(torch.tensor([[1, 1, 1, 0, 0], [0] * 5, [0, 1, 1, 1, 1]]))
    queries = TokenPositions.packed(torch.tensor([[1] * L, [1] * L, [0] * 3 + [1] * (L - 3)]))
    mask, memory = Visibility(False, queries, source), random_tensor(B, 5, DIMS.d_memory, seed=3)
    check(lambda: TinyMixer(settings, attention="cross"), memory, mask, dtype, tolerance, device)


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize(("dtype", "tolerance"), HALF)
@pytest.mark.parametrize(("settings", "direction", "layout"), SELF)
def test_half_precision_is_near_fp32_under_every_mask(
    settings: MixerSettings, direction: Direction, layout: Layout, dtype: torch.dtype, tolerance: float
) -> None:
    check_self(settings, direction, layout, dtype, tolerance, "cpu")


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize(("dtype", "tolerance"), HALF)
@pytest.mark.parametrize("settings", CROSS)
def test_half_precision_is_near_fp32_for_an_empty_source(
    settings: MixerSettings, dtype: torch.dtype, tolerance: float
) -> None:
    check_cross(settings, dtype, tolerance, "cpu")


@pytest.mark.parametrize("backend", [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])
@pytest.mark.parametrize("kind", ["bool", "bias"])
def test_a_blind_query_gives_zeros_in_every_kernel(
    backend: SDPBackend, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same outputs and gradients, whether a kernel is relied on or not; the third query attends to nothing."""
    tensors = [random_tensor(2, 3, 4, 8, seed=seed) for seed in range(3)]
    mask = torch.tensor([[1, 0, 0, 1], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()
    bias = random_tensor(3, 4, 4, seed=4)
    gradients = []
    for relied_on in (frozenset({"cpu"}), frozenset()):
        monkeypatch.setattr(fused, "ZEROS_IF_BLIND", relied_on)
        leaves = [t.clone().requires_grad_() for t in (*tensors, bias)]
        given = mask if kind == "bool" else leaves[3].masked_fill(~mask, -torch.inf)
        with sdpa_kernel(
            backend if kind == "bool" else [backend, SDPBackend.MATH]
        ):  # no other kernel has a gradient of a bias
            y = fused.fused_attention(*leaves[:3], given, 0.3, 0.0)
        assert not y[:, :, 2].any()
        gradients.append(torch.autograd.grad(y.square().sum(), leaves if kind == "bias" else leaves[:3]))
    for relied, opened in zip(*gradients, strict=True):
        torch.testing.assert_close(opened, relied, rtol=0, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU here")
@pytest.mark.parametrize(
    "backend", [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]
)
@pytest.mark.parametrize(("dtype", "tolerance"), HALF)
def test_half_precision_is_near_fp32_in_every_kernel_of_a_gpu(
    backend: SDPBackend, dtype: torch.dtype, tolerance: float
) -> None:
    """A kernel that does not take a mask or a width leaves it to the formula."""
    with sdpa_kernel([backend, SDPBackend.MATH], set_priority=True):
        for case in SELF:
            check_self(*case.values, dtype, tolerance, "cuda")  # type: ignore[arg-type]
        for case in CROSS:
            check_cross(*case.values, dtype, tolerance, "cuda")  # type: ignore[arg-type]
