"""Queries, keys and values of one projection: on a GPU, no gradient is concatenated, and each weight is cast once."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from mini_tf.data.batch import Batch
from mini_tf.nn.layers import cross_entropy, kernels
from mini_tf.nn.layers.kernels import FusedLinear, split_outputs
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives._token_loss import TokenLoss
from mini_tf.recipe.kinds import settings_of
from mini_tf.testing.tiny.models import random_ids, source_for, tiny_model

SIZES = (8, 4, 6)


class Calls(TorchDispatchMode):
    """Counts operations by name, and casts by the address of the tensor that is cast."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.casts: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[str(func)] += 1
        if func is torch.ops.aten._to_copy.default:
            self.casts[args[0].data_ptr()] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SPLIT_PRODUCTS", frozenset({"cpu"}))


def results(linear: nn.Module, x: Tensor, autocast: bool, used: tuple[int, ...] = (0, 1, 2)) -> list[Tensor]:
    """The parts, and the gradients of the input and of the parameters; used: parts that have a gradient."""
    x = x.clone().requires_grad_()
    linear.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        parts = split_outputs(linear, x, SIZES)
    weights = torch.arange(sum(SIZES)).float().sin().split(SIZES)
    torch.stack([(parts[i].float() * weights[i]).square().sum() for i in used]).sum().backward()
    return [*parts, x.grad, *(p.grad for p in linear.parameters())]  # type: ignore[list-item]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_products_of_the_parts_are_those_of_one_matrix(
    autocast: bool, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    linear, x = FusedLinear(5, SIZES, bias), torch.randn(2, 3, 5)
    for used in ((0, 1, 2), (0, 2)):
        expected = [part.detach().clone() for part in results(linear, x, autocast, used)]
        with monkeypatch.context() as patched:
            patched.setattr(kernels, "SPLIT_PRODUCTS", frozenset({"cpu"}))
            parts = results(linear, x, autocast, used)
        tolerance = 0.02 if autocast else 1e-6
        torch.testing.assert_close(parts, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("on_a_gpu")
def test_autocast_leaves_float64_as_it_is() -> None:
    linear, x = FusedLinear(5, SIZES, True).double(), torch.randn(2, 3, 5).double()
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(split_outputs(linear, x, SIZES), linear(x).split(SIZES, dim=-1))


def a_task(positions: str, **keys: Any) -> tuple[TokenLoss, Batch]:
    settings = settings_of("models", keys.pop("kind", "decoder"))(
        d_model=16, n_layers=2, n_heads=2, positions=settings_of("positions", positions)(), **keys
    )
    model = tiny_model(settings).float()  # type: ignore[arg-type]
    return TokenLoss(model.train(), "loss"), Batch(
        Tokens(random_ids()), random_ids(seed=5).flatten(), None, source_for(model)
    )


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
def test_the_backward_pass_of_gpt2_does_not_concatenate(kind: str) -> None:
    task, batch = a_task("learned", kind=kind, bias=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = task(batch).parts["loss"]
    with Calls() as calls:
        loss.backward()
    assert calls.names["aten.mm.default"] + calls.names["aten.mm.out"] > 0
    assert calls.names["aten.cat.default"] == 0


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
def test_each_weight_is_cast_once_in_a_step_of_bf16(
    kind: str, positions: str, gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the forward and the backward pass together; a tied embedding is looked up in fp32."""
    if gpu:
        monkeypatch.setattr(kernels, "SPLIT_PRODUCTS", frozenset({"cpu"}))
        monkeypatch.setattr(cross_entropy, "chunks_on", lambda device, *sizes: cross_entropy.target_chunks(*sizes))
        monkeypatch.setattr(cross_entropy, "LARGE_CHUNK", 100)  # so that there are several chunks
    task, batch = a_task(positions, kind=kind, bias=True, norm="layer")
    with Calls() as calls:
        with torch.autocast("cpu", torch.bfloat16):
            loss = task(batch).parts["loss"]
        loss.backward()
    weights = {name: calls.casts[p.data_ptr()] for name, p in task.named_parameters() if p.dim() == 2}
    assert {name: n for name, n in weights.items() if n > 1} == {}
    assert sum(weights.values()) >= 2 * 4  # of each layer, those of its linear layers
