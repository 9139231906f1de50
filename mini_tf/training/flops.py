"""Floating-point operations of a forward pass, counted while it runs: matrix products, 2 per multiply-add.

Lookups are free. A causal mask saves nothing: the full square of attention scores is counted, as in Chowdhery et al.
2022 (PaLM), arXiv:2204.02311, appendix B, and in nanoGPT.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

TRAINING_PASSES = 3
"""Forward and backward: three times forward (Kaplan et al. 2020, arXiv:2001.08361, 2.1)."""


def flops_of(forward: Callable[[], Any]) -> int:
    """Operations of one forward pass, without recomputation in the backward pass."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # torch counts the fused kernels of GPUs only
    with FlopCounterMode(display=False, custom_mapping={kernel: _attention_work}) as counter:
        forward()
    return int(counter.get_total_flops())


def _attention_work(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], *rest: object, out_shape: object = None, **options: object
) -> int:
    """q k^T and weights v, from the shapes (B, H, L, K), (B, H, M, K), (B, H, M, V)."""
    return 2 * q[0] * q[1] * q[2] * k[2] * (k[3] + v[3])
