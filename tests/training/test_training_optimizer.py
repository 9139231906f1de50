"""Our AdamW against torch's own; which parameters are moved, and how fast. What all share: test_optimizers.py."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mini_tf.models.encoder_decoder import EncoderSettings
from mini_tf.optimizers import Parameter, muon
from mini_tf.optimizers._adam import AdamW
from mini_tf.optimizers.adamw import Settings
from mini_tf.optimizers.muon import Muon, orthogonalize
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.training.optimizer import build, clip_factor, depths, roles_of

SETTINGS = Settings(betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def tiny_model(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)).to(dtype)


def gradients(model: nn.Module, step: int) -> None:
    torch.manual_seed(100 + step)
    for p in model.parameters():
        p.grad = torch.randn_like(p)


def rate(step: int) -> float:
    return 1e-2 * (1 + step % 7)


def optimizers_of(model: nn.Module) -> AdamW:
    parameters = {
        name: Parameter(p, "embedding" if name == "0.weight" else "matrix") for name, p in model.named_parameters()
    }
    return AdamW(SETTINGS, parameters)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_fifty_steps_equal_those_of_torch(dtype: torch.dtype, tolerance: float) -> None:
    ours, theirs = tiny_model(dtype), tiny_model(dtype)
    optimizer = optimizers_of(ours)
    matrices = [theirs[1].weight, theirs[3].weight]
    others = [p for p in theirs.parameters() if all(p is not m for m in matrices)]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    for step in range(50):
        for model in (ours, theirs):
            gradients(model, step)
        optimizer.step(rate(step))
        for group in reference.param_groups:
            group["lr"] = rate(step)
        reference.step()
    for (name, mine), torchs in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_close(mine, torchs, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


def test_clipping_is_that_of_torch() -> None:
    ours, theirs = tiny_model(), tiny_model()
    optimizer = optimizers_of(ours)
    gradients(ours, 0)
    gradients(theirs, 0)
    norm = nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
    assert_close(optimizer.grad_norm(), norm)
    optimizer.step(1e-3, clip_factor(float(optimizer.grad_norm()), 0.5))
    for mine, torchs in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(mine.grad, torchs.grad)
    assert clip_factor(3.0, 0) == 1.0
    assert clip_factor(3.0, 5.0) == 1.0


def test_state_of_another_model_is_refused() -> None:
    optimizer = optimizers_of(tiny_model())
    saved = optimizer.state_tensors()
    with pytest.raises(
        ValueError, match=r"does not match the model: 0\.weight\.exp_avg \(1 names missing or unexpected\)"
    ):
        optimizer.load({name: tensor for name, tensor in saved.items() if name != "0.weight.exp_avg"})
    with pytest.raises(ValueError, match=r"the model: 1, 2, 3, 4, 5 \(6 names missing or unexpected\)"):
        optimizer.load(saved | {str(n): torch.zeros(()) for n in range(1, 7)})
    with pytest.raises(
        ValueError, match=r"0\.weight\.exp_avg: torch\.float32 \[5, 4\] must be torch\.float64 \[5, 4\]"
    ):
        optimizer.load({**saved, "0.weight.exp_avg": torch.zeros(5, 4)})


DEPTHS = {
    "embedding.": 3, "stack.layers.0.": 2, "stack.layers.1.": 1, "stack.norm.": 0, "head.": 0,
    "source_embedding.": 4, "encoder.layers.0.": 3, "encoder.layers.1.": 2, "encoder.layers.2.": 1, "encoder.norm.": 0,
}  # fmt: skip


def layered_model(**settings: Any) -> nn.Module:
    """Two layers above a source side of three, each with tables and norms of its own."""
    torch.manual_seed(0)
    kind: Any = settings_of("models", "encoder_decoder")
    sizes = {"d_model": 8, "n_heads": 2, "n_layers": 2, "encoder": EncoderSettings(n_layers=3)}
    parts = {"bias": True, "tied": False, "head": "bert", "positions": settings_of("positions", "learned")()}
    model: nn.Module = kind(**sizes | parts | {"shared_embeddings": False} | settings).build(20, 8, 15)
    return model


def depth_of(name: str) -> int:
    return next(depth for beginning, depth in DEPTHS.items() if name.startswith(beginning))


def test_depths_are_counted_from_the_top_of_each_stack() -> None:
    model = layered_model()
    names = [name for name, _ in model.named_parameters()]
    assert {beginning for beginning in DEPTHS if any(name.startswith(beginning) for name in names)} == DEPTHS.keys()
    assert depths(model) == {name: depth_of(name) for name in names}
    assert depths(layered_model(tied=True))["embedding.tokens.weight"] == 3
    assert depths(nn.Linear(2, 2)) == {"weight": 0, "bias": 0}


def test_frozen_layers_count_too() -> None:
    model = layered_model()
    for name, p in model.named_parameters():
        p.requires_grad_(not name.startswith("stack.layers.1"))
    optimizer = build(Settings(layer_decay=0.5), model)
    assert isinstance(optimizer, AdamW)
    rates = {name: rate for names, _, rate in optimizer.groups for name in names}
    assert rates["stack.layers.0.self_attn.part.out.weight"] == 0.25


def test_adamw_steps_by_the_rate_of_each_parameter() -> None:
    """Against torch's own, with one group a parameter: lr, or the role's own rate, times decay^depth."""
    settings = Settings(lr=0.01, embedding_lr=0.03, head_lr=0.002, weight_decay=0.2, layer_decay=0.7)
    ours, theirs = layered_model().double(), layered_model().double()
    own_rates = {"embedding": 0.03, "head": 0.002, "vector": 0.01, "matrix": 0.01}
    roles = roles_of(theirs)
    groups = [
        {
            "params": [p],
            "lr": 0.5 * own_rates[roles[name]] * 0.7 ** depth_of(name),
            "weight_decay": 0.2 * (roles[name] in ("matrix", "head")),
        }
        for name, p in theirs.named_parameters()
    ]
    optimizer, reference = build(settings, ours), torch.optim.AdamW(groups, betas=settings.betas, eps=settings.eps)
    for step in range(3):
        for model in (ours, theirs):
            gradients(model, step)
        optimizer.step(0.5 * settings.lr)
        reference.step()
    for (name, mine), torchs in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_close(mine, torchs, rtol=1e-12, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


def test_muon_steps_by_the_rate_of_each_matrix() -> None:
    """Matrices of one shape go through it together, whatever their layers."""
    settings = muon.Settings(lr=0.02, momentum=0.9, weight_decay=0.3, layer_decay=0.7)
    model = layered_model().double()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = build(settings, model, torch.float64)
    assert isinstance(optimizer, Muon)
    gradients(model, 0)
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    optimizer.step(0.01)
    assert {depth_of(name) for name in optimizer.matrices} == {0, 1, 2, 3}
    for name, matrix in optimizer.matrices.items():
        lr = 0.01 * 0.7 ** depth_of(name)
        ahead = 0.1 * grads[name] + 0.9 * 0.1 * grads[name]
        parts = [
            orthogonalize(part[None], 5)[0] * max(1.0, part.shape[0] / part.shape[1]) ** 0.5
            for part in ahead.split(matrix.split_sizes or len(ahead))
        ]
        assert_close(model.get_parameter(name).detach(), before[name] * (1 - lr * 0.3) - lr * torch.cat(parts))


def test_without_layer_decay_all_rates_are_as_they_were_to_the_bit() -> None:
    for kind in listing("optimizers"):
        optimizer = build(settings_of("optimizers", kind)(), layered_model())  # type: ignore[arg-type]
        assert {p.lr_scale for p in optimizer.parameters.values()} == {1.0}
