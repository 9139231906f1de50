"""Linear output layer and cross-entropy fused, so that the logits of all targets never exist at once.

Targets are processed in chunks that fit into the CPU cache; the logits of a chunk are turned into their gradient in
place, so nothing of size (T, V) is kept for the backward pass. After Wijmans et al. 2024, "Cut Your Losses",
arXiv:2411.09009.

With copied tokens the loss is that of the mixture p(w) = p_gen p_vocab(w) (1 + odds(w) / p_vocab(w)), where the odds
are not 0 only for the M tokens of a source (`Copies`); nothing else of size V is needed.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from mini_tf.nn.layers.copy_attention import Copies

CHUNK = 2**19
"""Number of logits of a chunk: 2 MiB in fp32, which fits into the cache of a core."""

FEWEST = 64
"""Minimum number of targets of a chunk, for efficient matrix products."""


def cross_entropy(
    hidden: Float[Tensor, "T D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None,
    labels: Int[Tensor, " T"],
    smoothing: float = 0.0,
    copies: Copies | None = None,
) -> Float[Tensor, ""]:
    """The sum over T of -log softmax(hidden weight^T + bias)[label], in nats.

    smoothing: label smoothing over all V (Szegedy et al. 2016, arXiv:1512.00567, section 7). copies: of each target,
    for the loss of the mixture, -log p(label), with the same smoothing over all V.
    """
    autocast_bf16 = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    same_dtype = hidden.dtype == weight.dtype and not torch.is_autocast_enabled("cpu")
    fused = hidden.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64) and (autocast_bf16 or same_dtype)
    if not fused or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        logits = F.linear(hidden, weight, bias)
        # Half precision is too coarse for a sum of exponentials.
        logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
        logits = logits if copies is None else copies.mix(logits)
        return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
    products = torch.bfloat16 if autocast_bf16 else weight.dtype
    odds, ids = (None, None) if copies is None else (copies.log_odds, copies.ids)
    loss: Tensor = _CrossEntropy.apply(hidden, weight, bias, odds, _Targets(labels, ids, smoothing), products)
    return loss if copies is None else loss - copies.log_p_gen.sum()


class _Targets(NamedTuple):
    """labels (T,); ids (T, M): tokens of the source of each target, if it copies."""

    labels: Tensor
    ids: Tensor | None
    smoothing: float


class _CrossEntropy(torch.autograd.Function):
    """With p = softmax(logits) and q = (1 - smoothing) onehot(label) + smoothing / V: d loss / d logits = p - q.

    With log-odds (T, M) of the tokens `ids` (T, M) the loss is the sum of -q log(p + odds): each q is multiplied by the
    share of p in p + odds, and p by the sum of these. Gradients are computed in the forward pass. Matrix products have
    the dtype `products`, all else at least fp32.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, odds: Tensor | None, targets: _Targets, products: torch.dtype
    ) -> Tensor:
        labels, ids, smoothing = targets
        d_hidden, d_odds = torch.empty_like(hidden), None if odds is None else torch.empty_like(odds)
        d_weight = torch.zeros_like(weight)
        d_bias = None if bias is None else torch.zeros_like(bias)
        loss = weight.new_zeros(())
        rows = max(FEWEST, CHUNK // weight.shape[0])
        table, hidden, added = weight.to(products), hidden.to(products), None if bias is None else bias.to(products)
        for first in range(0, len(labels), rows):
            part = slice(first, first + rows)
            h, label = hidden[part], labels[part]
            logits = F.log_softmax(F.linear(h, table, added).to(weight.dtype), dim=-1)
            loss -= logits.gather(1, label[:, None]).sum() * (1 - smoothing)
            if smoothing:
                loss -= logits.sum() * (smoothing / weight.shape[0])
            copied = None
            if odds is not None and ids is not None and d_odds is not None:
                q = (ids[part] == label[:, None]).to(weight.dtype) * (1 - smoothing) + smoothing / weight.shape[0]
                ratio = odds[part] - logits.gather(1, ids[part])
                loss += (q * F.logsigmoid(-ratio)).sum()
                copied = q * ratio.sigmoid()
                d_odds[part] = -copied
            d_logits = logits.exp_()
            if copied is not None:
                d_logits *= 1 - copied.sum(dim=1, keepdim=True)
            d_logits.scatter_add_(1, label[:, None], logits.new_full((len(label), 1), smoothing - 1.0))
            if smoothing:
                d_logits -= smoothing / weight.shape[0]
            if copied is not None and ids is not None:
                d_logits.scatter_add_(1, ids[part], copied)
            if d_bias is not None:
                d_bias += d_logits.sum(dim=0)
            d_logits = d_logits.to(products)
            if products == weight.dtype:
                torch.mm(d_logits, table, out=d_hidden[part])
                d_weight.addmm_(d_logits.t(), h)
            else:
                d_hidden[part] = d_logits @ table
                d_weight += d_logits.t() @ h
        ctx.save_for_backward(d_hidden, d_weight, d_bias, d_odds)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias, d_odds = (None if one is None else one * d_loss for one in ctx.saved_tensors)
        return d_hidden, d_weight, d_bias, d_odds, None, None
