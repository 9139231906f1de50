"""On GPUs training uses torch's deterministic kernels; test_capture_safety.py tries that none is missing."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mini_tf.generation.sampling import draw
from mini_tf.nn.layers.kernels import cumulative_sum
from mini_tf.recipe.sections import Generate
from mini_tf.training.machine.device import Setup

REFUSED = (
    *("cumsum", "histc", "median", "kthvalue", "put", "put_", "nll_loss2d"),
    *("upsample", "grid_sampler", "adaptive", "reflection_pad"),
)
"""Names of operations on floats that torch refuses on GPUs in its deterministic mode, or how they begin."""


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


class Operations(TorchDispatchMode):
    """Records operations on floats that are REFUSED."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        floats = isinstance(args[0], Tensor) and args[0].is_floating_point() if args else False
        product = name.startswith("scatter_reduce") and "prod" in args
        if (name.startswith(REFUSED) and floats) or product:
            self.refused.add(name)
        return function(*args, **(kwargs or {}))


def test_an_operation_without_a_deterministic_kernel_is_noticed() -> None:
    with Operations() as operations:
        torch.ones(3).cumsum(0)
        torch.ones(3).long().cumsum(0)
    assert operations.refused == {"cumsum"}


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("n", [0, 1, 2, 5, 8, 13])
def test_a_sum_of_shifted_additions_is_the_cumulative_sum(n: int) -> None:
    for shape, dim in (((3, n), -1), ((2, n, 3), 1)):
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        with Operations() as operations:
            y = cumulative_sum(x, dim)
        assert operations.refused == set()
        torch.testing.assert_close(y, x.cumsum(dim))
        weights = torch.randn(shape, dtype=torch.float64)
        torch.testing.assert_close(*(torch.autograd.grad((out * weights).sum(), x)[0] for out in (y, x.cumsum(dim))))


def test_ids_are_drawn_by_deterministic_kernels_too(deterministic: None) -> None:
    logits, uniform = (
        torch.randn(4, 50, generator=torch.Generator().manual_seed(1)),
        torch.tensor([[0.1], [0.5], [0.7], [0.99]]),
    )
    with Operations() as operations:
        ids = draw(logits, Generate(top_p=0.9), uniform)
    assert operations.refused == set()
    torch.use_deterministic_algorithms(False)
    assert torch.equal(draw(logits, Generate(top_p=0.9), uniform), ids)


@pytest.mark.parametrize(
    ("device", "workspace", "chosen"), [("cuda:0", None, True), ("cuda:0", ":0:0", False), ("cpu", None, False)]
)
def test_deterministic_kernels_are_chosen_on_gpus_alone(
    device: str, workspace: str | None, chosen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever chose another workspace of cuBLAS, with which torch refuses matrix products, keeps it."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "" if workspace is None else workspace)
    if workspace is None:
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    try:
        Setup(device=torch.device(device)).make_deterministic()
        assert torch.are_deterministic_algorithms_enabled() is chosen
        assert torch.is_deterministic_algorithms_warn_only_enabled() is False
        assert torch.utils.deterministic.fill_uninitialized_memory is not chosen
    finally:
        torch.use_deterministic_algorithms(False)
