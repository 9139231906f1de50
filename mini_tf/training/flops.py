"""FLOPs: products of matrices in a forward pass, a multiply-add is two; with the backward pass three times as many.

They are counted by torch's formulas while the code of the model runs, but on weights that take no memory, and without
computing the products, so a count costs only the element-wise operations of a pass. `FlopCounterMode` and the meta
device would do the same, but both import torch's compiler, which takes seconds.

Embedding look-ups count nothing. Causal attention counts the full matrix of scores, as in Chowdhery et al. 2022 (PaLM),
arXiv:2204.02311, appendix B, and in nanoGPT. Padding counts as the kernels compute it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from mini_tf.data.batch import Batch

TRAINING_PASSES = 3
"""FLOPs of forward plus backward, relative to forward: the backward pass computes gradients of inputs and of weights
(Kaplan et al. 2020, arXiv:2001.08361, 2.1)."""
MAX_COUNTED = 16
"""Shapes of micro-batches that are counted; the FLOPs of more are fitted to these."""
_CPU_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@torch.no_grad()  # with gradients, the loss computes a part of the backward pass
def training_flops(
    task: nn.Module, buffers: Mapping[str, Tensor], batches: Sequence[Batch], device: torch.device
) -> int:
    """FLOPs of forward and backward on these micro-batches, from at most MAX_COUNTED of different shape.

    task: possibly on the meta device, with buffers from `buffers`. Adapters and frozen parameters count as if all
    parameters were trained, and a stream without its memory.
    """
    weights = {
        name: torch.zeros((), dtype=p.dtype, device=device).expand(p.shape) for name, p in task.named_parameters()
    }
    batch_of = {_shape(batch): batch for batch in batches}
    shapes = sorted(batch_of)
    n_counted = min(MAX_COUNTED, len(shapes))
    counted: dict[_Shape, float] = {}
    for shape in (shapes[i * (len(shapes) - 1) // max(1, n_counted - 1)] for i in range(n_counted)):
        forward = partial(functional_call, task.train(), {**weights, **buffers}, (batch_of[shape].to(device), None))
        counted[shape] = forward_flops(forward, device)
    if n_counted < len(shapes):
        factors, *_ = np.linalg.lstsq(
            np.array([_terms(shape) for shape in counted]), np.array([*counted.values()]), rcond=None
        )
        counted = {shape: float(np.dot(_terms(shape), factors)) for shape in shapes} | counted
    return TRAINING_PASSES * round(sum(counted[_shape(batch)] for batch in batches))


class _Shape(NamedTuple):
    """Of a micro-batch; source_length: 0 without a source."""

    rows: int
    length: int
    source_length: int
    targets: int


def _shape(batch: Batch) -> _Shape:
    rows, length = batch.inputs.ids.shape
    return _Shape(rows, length, 0 if batch.source is None else batch.source.ids.shape[1], len(batch.labels))


def _terms(shape: _Shape) -> list[float]:
    """Of whose products with factors FLOPs are the sum: tokens, pairs of tokens in a row, targets."""
    rows, length, source, targets = shape
    pairs = [rows * length * length, rows * length * source, rows * source * source]
    return [rows * length, rows * source, *pairs, targets]


def forward_flops(forward: Callable[[], object], device: torch.device) -> int:
    """FLOPs of one call of `forward`, whose products are zeros; random generators are as before."""
    generators = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(generators), _ProductCounter() as counter:
        forward()
    return int(counter.flops)


class _ProductCounter(TorchDispatchMode):
    """Counts products, and computes only those that it has no shape for."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # a wrapper that imports torch's compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        output = (_ZEROS.get(func) or func)(*args, **kwargs)
        if func is _CPU_ATTENTION.default:  # torch has formulas only of the kernels of GPUs
            self.flops += sdpa_flop_count(*(t.shape for t in args[:3]))
        elif (formula := flop_registry.get(func.overloadpacket)) is not None:
            self.flops += formula(*args, **kwargs, out_val=output)
        return output


def _zero_product(*args: Tensor, **factors: float) -> Tensor:
    a, b = args[-2:]
    return a.new_zeros(*a.shape[:-1], b.shape[-1])


def _zero_attention(q: Tensor, k: Tensor, v: Tensor, *options: object, **named: object) -> tuple[Tensor, Tensor]:
    """Outputs, and the logarithms of the sums of weights."""
    return q.new_zeros(*q.shape[:-1], v.shape[-1]), q.new_zeros(q.shape[:-1])


_PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm)
_ZEROS: dict[Any, Callable[..., Any]] = {
    _CPU_ATTENTION.default: _zero_attention,
    **{packet.default: _zero_product for packet in _PRODUCTS},
}
