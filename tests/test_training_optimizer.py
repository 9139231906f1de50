"""Our AdamW against torch's own."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from mini_tf.recipe.sections import Optimizer as Settings
from mini_tf.training.adamw import AdamW
from mini_tf.training.optimizer import build, clip_factor

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


def optimizers_of(model: nn.Module, fused: bool) -> AdamW:
    return AdamW(dict(model.named_parameters()), SETTINGS, ["0.weight"], fused)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_fifty_steps_equal_those_of_torch(fused: bool, dtype: torch.dtype, tolerance: float) -> None:
    ours, theirs = tiny_model(dtype), tiny_model(dtype)
    optimizer = optimizers_of(ours, fused)
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


def test_weight_decay_pulls_on_matrices_but_not_on_vectors_or_embeddings() -> None:
    model = tiny_model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = build(SETTINGS, model)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step(0.5)
    for name, p in model.named_parameters():
        decayed = name in {"1.weight", "3.weight"}
        assert_close(p.detach(), before[name] * (1 - 0.5 * 0.1) if decayed else before[name])


def test_frozen_parameters_and_those_without_a_gradient_keep_still() -> None:
    model = tiny_model()
    model[1].requires_grad_(False)
    optimizer = build(SETTINGS, model)
    frozen, idle = model[1].weight.clone(), model[3].weight.detach().clone()
    gradients(model, 0)
    model[3].weight.grad = None
    optimizer.step(0.1)
    assert torch.equal(model[1].weight, frozen)
    assert torch.equal(model[3].weight, idle)
    assert not any("1.weight" in name for name in optimizer.state_tensors())


def test_clipping_is_that_of_torch() -> None:
    ours, theirs = tiny_model(), tiny_model()
    optimizer = optimizers_of(ours, fused=True)
    gradients(ours, 0)
    gradients(theirs, 0)
    norm = nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
    assert_close(optimizer.grad_norm(), norm)
    optimizer.step(1e-3, clip_factor(float(optimizer.grad_norm()), 0.5))
    for mine, torchs in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(mine.grad, torchs.grad)
    assert clip_factor(3.0, 0) == 1.0
    assert clip_factor(3.0, 5.0) == 1.0


@pytest.mark.parametrize("fused", [True, False])
def test_a_saved_and_loaded_optimizer_goes_on_with_the_same_bits(fused: bool) -> None:
    def steps(model: nn.Module, optimizer: AdamW, first: int, last: int) -> None:
        for step in range(first, last):
            gradients(model, step)
            optimizer.step(rate(step))

    whole, halved = tiny_model(torch.float32), tiny_model(torch.float32)
    steps(whole, optimizers_of(whole, fused), 0, 6)
    first = optimizers_of(halved, fused)
    steps(halved, first, 0, 3)
    saved: dict[str, Tensor] = {name: tensor.clone() for name, tensor in first.state_tensors().items()}
    second = optimizers_of(halved, fused)
    second.load(saved)
    steps(halved, second, 3, 6)
    for a, b in zip(whole.parameters(), halved.parameters(), strict=True):
        assert torch.equal(a, b)


def test_state_of_another_model_is_refused() -> None:
    optimizer = optimizers_of(tiny_model(), fused=True)
    saved = optimizer.state_tensors()
    with pytest.raises(ValueError, match=r"does not fit the model: 0\.weight\.exp_avg \(1 names on one side only\)"):
        optimizer.load({name: tensor for name, tensor in saved.items() if name != "0.weight.exp_avg"})
    with pytest.raises(ValueError, match=r"0\.weight\.exp_avg: torch\.float32 \[5, 4\] must be torch\.float64 \[5, 4\]"):
        optimizer.load({**saved, "0.weight.exp_avg": torch.zeros(5, 4)})


def test_no_compiler_is_imported_for_an_optimizer_step() -> None:
    code = """if True:
        import sys, torch
        from mini_tf.recipe.sections import Optimizer
        from mini_tf.training import loop
        from mini_tf.training.optimizer import build
        model = torch.nn.Linear(2, 2)
        optimizer = build(Optimizer(), model)
        torch.manual_seed(0)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step(float(optimizer.grad_norm()) * 0.1)
        assert "torch._dynamo" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True)
