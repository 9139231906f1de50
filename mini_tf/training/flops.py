"""FLOPs of a forward pass, counted while it runs: matrix products only, a multiply-add is two.

The formulas of the kinds (`ObjectiveSettings.forward_flops`, `MixerSettings.cost`) give the same numbers beforehand.

Embedding look-ups count nothing. Causal attention counts the full matrix of scores, as in Chowdhery et al. 2022 (PaLM),
arXiv:2204.02311, appendix B, and in nanoGPT.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from mini_tf.data.batch import Batch
from mini_tf.nn.batch_sizes import BatchSizes
from mini_tf.nn.layers.head import OutputLayer
from mini_tf.nn.model import Model

TRAINING_PASSES = 3
"""FLOPs of forward plus backward, relative to forward: the backward pass computes gradients of inputs and of weights
(Kaplan et al. 2020, arXiv:2001.08361, 2.1)."""


def sizes_of(batch: Batch, model: Model, vocabulary: int) -> BatchSizes:
    """The sizes from which `ObjectiveSettings.forward_flops` computes its formula; vocabulary: of the targets."""
    rows, length = batch.inputs.ids.shape
    outputs = model.head.linear.out_features if isinstance(model.head, OutputLayer) else vocabulary
    source = 0 if batch.source is None else batch.source.ids.shape[1]
    shared = (tokens is not None and (tokens.token_positions is None or tokens.token_positions.positions is None)
              for tokens in (batch.inputs, batch.source))  # fmt: skip
    return BatchSizes(rows, length, len(batch.labels), vocabulary, outputs, source, batch.counts, *shared)


def flops_of(forward: Callable[[], Any]) -> int:
    """FLOPs of one call. Recomputation in the backward pass of fused kernels is never counted."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # torch only counts the fused kernels of GPUs
    with FlopCounterMode(display=False, custom_mapping={kernel: _attention_flops}) as counter:
        forward()
    return int(counter.get_total_flops())


def _attention_flops(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], *rest: object, out_shape: object = None, **options: object
) -> int:
    """q k^T and weights v, from the shapes (B, H, L, K), (B, H, M, K), (B, H, M, V)."""
    return 2 * q[0] * q[1] * q[2] * k[2] * (k[3] + v[3])
