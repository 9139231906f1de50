"""Muon by its properties: what it makes of a matrix, against the exact answer in float64; how it treats the rest of a
model.
"""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from mini_tf.nn.layers.head import TaskHead
from mini_tf.nn.layers.kernels import FusedLinear
from mini_tf.optimizers import adamw
from mini_tf.optimizers.muon import COEFFICIENTS, SAFETY, Muon, Settings, orthogonalize
from mini_tf.recipe.kinds import settings_of
from mini_tf.training.optimizer import build, roles_of

SETTINGS = Settings(lr=0.02, momentum=0.9, orthogonal_steps=5, weight_decay=0.0)


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def polar(matrix: Tensor) -> Tensor:
    """The nearest orthogonal matrix, by singular values in float64."""
    u, _, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    return u @ v


def polynomial(values: Tensor, n_steps: int) -> Tensor:
    """What the steps do to singular values: an odd polynomial acts on each alone."""
    for step in range(n_steps):
        a, b, c = COEFFICIENTS[min(step, len(COEFFICIENTS) - 1)]
        if step < len(COEFFICIENTS) - 1:
            a, b, c = a / SAFETY, b / SAFETY**3, c / SAFETY**5
        values = a * values + b * values**3 + c * values**5
    return values


@pytest.mark.parametrize("shape", [(8, 8), (8, 24), (24, 8), (1, 5)])
@pytest.mark.parametrize("n_steps", [1, 3, 7])
def test_the_update_is_the_polynomial_of_the_singular_values(shape: tuple[int, int], n_steps: int) -> None:
    matrix = drawn(*shape)
    u, values, v = torch.linalg.svd(matrix, full_matrices=False)
    scaled = values / (values.norm() * SAFETY + 1e-7)
    expected = u @ torch.diag(polynomial(scaled, n_steps)) @ v
    assert_close(orthogonalize(matrix[None], n_steps)[0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(32, 32), (32, 128), (128, 32)])
def test_many_steps_reach_the_orthogonal_matrix_of_float64(shape: tuple[int, int]) -> None:
    matrix = drawn(*shape)
    assert_close(orthogonalize(matrix[None], 12)[0], polar(matrix), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(64, 64), (64, 256), (256, 64)])
def test_five_steps_are_near_orthogonal_in_the_types_of_training(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    update = orthogonalize(drawn(*shape, dtype=torch.float32).to(dtype)[None], 5)[0]
    assert update.dtype == dtype
    values = torch.linalg.svdvals(update.float())
    assert values.median().item() == pytest.approx(1.0, abs=0.15)
    assert values.max() < 1.25
    if shape[0] != shape[1]:  # a square random matrix has singular values near 0, which take more steps
        assert values.min() > 0.7


def test_matrices_go_through_it_together_as_they_do_alone() -> None:
    matrices = drawn(5, 6, 9)
    together = orthogonalize(matrices, 4)
    for matrix, update in zip(matrices, together, strict=True):
        assert_close(orthogonalize(matrix[None], 4)[0], update)


def test_the_size_of_a_gradient_does_not_matter_and_zero_moves_nothing() -> None:
    matrix = drawn(1, 6, 6)
    assert_close(orthogonalize(matrix * 1e6, 5), orthogonalize(matrix, 5), rtol=1e-5, atol=1e-5)
    assert orthogonalize(torch.zeros(1, 6, 6), 5).abs().max() == 0


def test_steps_are_momentum_with_nesterov_then_orthogonal_for_each_part_of_a_joined_matrix() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"qkv": FusedLinear(4, (4, 4, 2), bias=True), "down": nn.Linear(8, 4)}).double()
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    expected, momentum = dict(start), {name: torch.zeros_like(p) for name, p in start.items()}
    optimizer = build(SETTINGS, model, torch.float64)
    rows = {"qkv.weight": (4, 4, 2), "down.weight": (4,)}
    for step in range(3):
        for i, p in enumerate(model.parameters()):
            p.grad = drawn(*p.shape, seed=10 * step + i)
        for name, sizes in rows.items():
            grad = model.get_parameter(name).grad
            assert grad is not None
            momentum[name] = 0.9 * momentum[name] + 0.1 * grad
            wanted = 0.1 * grad + 0.9 * momentum[name]
            parts = [
                orthogonalize(part[None], 5)[0] * max(1.0, part.shape[0] / part.shape[1]) ** 0.5
                for part in wanted.split(sizes)
            ]
            expected[name] = expected[name] - 0.01 * torch.cat(parts)
        optimizer.step(0.01)
    for name in rows:
        assert_close(model.get_parameter(name).detach(), expected[name])
    assert not torch.equal(model.get_parameter("down.bias").detach(), start["down.bias"])


def test_every_parameter_of_a_model_has_one_mover_and_tables_and_vectors_are_adamws() -> None:
    model = settings_of("models", "decoder")(
        d_model=16, n_layers=1, n_heads=2, tied=False, bias=True, ngrams=(50,)
    ).build(20, 8)  # type: ignore[attr-defined]
    optimizer = build(SETTINGS, model)
    assert isinstance(optimizer, Muon)
    moments = {name: set(kept) for name, kept in optimizer.state.items()}
    assert moments.keys() == dict(model.named_parameters()).keys()
    assert all(
        kept == ({"momentum"} if name in optimizer.matrices else {"exp_avg", "exp_avg_sq"})
        for name, kept in moments.items()
    )
    assert all(".self_attn." in name or ".feed_forward." in name for name in optimizer.matrices)
    assert sum(optimizer.matrices["stack.layers.0.self_attn.part.qkv.weight"].split_sizes) == 48
    roles = roles_of(model)
    assert {name for name, role in roles.items() if role == "head"} == {"head.linear.weight"}
    assert {name for name, role in roles.items() if role == "embedding"} == {
        "embedding.tokens.weight",
        "embedding.ngrams.tables.0.weight",
    }


def test_a_tied_table_is_an_embedding() -> None:
    model = settings_of("models", "decoder")(d_model=16, n_layers=1, n_heads=2, tied=True).build(20, 8)  # type: ignore[attr-defined]
    roles = roles_of(model)
    assert roles["embedding.tokens.weight"] == "embedding"
    assert "head" not in roles.values()


def test_rates_of_tables_and_head_are_their_own() -> None:
    model = settings_of("models", "decoder")(d_model=16, n_layers=1, n_heads=2, tied=False).build(20, 8)  # type: ignore[attr-defined]
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = build(adamw.Settings(lr=0.01, embedding_lr=0.03, head_lr=0.002, weight_decay=0.0, eps=1e-12), model)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step(0.01)
    moved = {name: (before[name] - p.detach()).abs().max().item() for name, p in model.named_parameters()}
    assert moved["embedding.tokens.weight"] == pytest.approx(0.03, rel=1e-4)
    assert moved["head.linear.weight"] == pytest.approx(0.002, rel=1e-4)
    assert moved["stack.layers.0.self_attn.part.out.weight"] == pytest.approx(0.01, rel=1e-4)


def test_what_scores_the_answers_of_a_task_is_a_head() -> None:
    model = settings_of("models", "encoder")(d_model=16, n_layers=1, n_heads=2).build(20, 8)  # type: ignore[attr-defined]
    model.replace_head(TaskHead(16, 3, 0.0))
    optimizer = build(SETTINGS, model)
    assert isinstance(optimizer, Muon)
    assert roles_of(model)["head.linear.weight"] == "head"
    assert "head.linear.weight" not in optimizer.matrices


def one_of_each() -> nn.Module:
    """A table, which AdamW moves with the biases, and two matrices."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 6), nn.Linear(6, 3)).double()


def with_gradients(model: nn.Module) -> None:
    for i, p in enumerate(model.parameters()):
        p.grad = drawn(*p.shape, seed=i, dtype=p.dtype)


def test_in_fp16_matrices_are_multiplied_in_fp32() -> None:
    models = [one_of_each().float() for _ in range(2)]
    for model, products in zip(models, (torch.float16, torch.float32), strict=True):
        optimizer = build(SETTINGS, model, products)
        for i, p in enumerate(model.parameters()):
            p.grad = drawn(*p.shape, seed=i).float()
        optimizer.step(0.01)
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(a, b)


def test_without_matrices_it_is_adamw() -> None:
    models = [nn.ModuleDict({"norm": nn.LayerNorm(4)}) for _ in range(2)]
    optimizers = [build(settings, model) for settings, model in zip((SETTINGS, adamw.Settings()), models, strict=True)]
    for model, optimizer in zip(models, optimizers, strict=True):
        with_gradients(model)
        optimizer.step(0.01)
    assert optimizers[0].state_tensors().keys() == optimizers[1].state_tensors().keys()
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))
