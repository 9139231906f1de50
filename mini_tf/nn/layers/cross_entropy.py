"""Cross-entropy straight from hidden vectors: the scores over the vocabulary are never all there at once.

Rows are judged in chunks that stay in the cache; each chunk's scores become their own gradient in place, so nothing of size
(T, V) is kept for the backward pass. Source of the idea: Wijmans et al. 2024, "Cut Your Losses", arXiv:2411.09009.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 2**19
"""Scores that are there at once: 2 MiB, what a core's cache holds."""

FEWEST = 64
"""Rows of a chunk: fewer would not fill a product."""


def cross_entropy(
    hidden: Float[Tensor, "T D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None,
    labels: Int[Tensor, " T"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The sum over T of -log softmax(hidden weight^T + bias)[label], in nats.

    smoothing: the share of each label's weight that is spread evenly over all V (Szegedy et al. 2016, arXiv:1512.00567, section 7).
    """
    half = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    whole = hidden.dtype == weight.dtype and not torch.is_autocast_enabled("cpu")
    known = hidden.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64) and (half or whole)
    if not known or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        scores = F.linear(hidden, weight, bias)
        # A sum of exponentials loses too much in half precision.
        scores = scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores
        return F.cross_entropy(scores, labels, reduction="sum", label_smoothing=smoothing)
    loss: Tensor = _CrossEntropy.apply(hidden, weight, bias, labels, smoothing, torch.bfloat16 if half else weight.dtype)
    return loss


class _CrossEntropy(torch.autograd.Function):
    """With p = softmax(s) and q = (1 - smoothing) onehot(label) + smoothing / V: d loss / d s = p - q.

    Gradients are made on the way forward, where the scores are at hand. Products are made in `products`, all else in fp32 at least.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, products: torch.dtype
    ) -> Tensor:
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.zeros_like(weight)
        d_bias = None if bias is None else torch.zeros_like(bias)
        loss = weight.new_zeros(())
        rows = max(FEWEST, CHUNK // weight.shape[0])
        table, hidden, added = weight.to(products), hidden.to(products), None if bias is None else bias.to(products)
        for h, label, d_h in zip(hidden.split(rows), labels.split(rows), d_hidden.split(rows), strict=True):
            scores = F.log_softmax(F.linear(h, table, added).to(weight.dtype), dim=-1)
            loss -= scores.gather(1, label[:, None]).sum() * (1 - smoothing)
            if smoothing:
                loss -= scores.sum() * (smoothing / weight.shape[0])
            d_scores = scores.exp_()
            d_scores.scatter_add_(1, label[:, None], scores.new_full((len(label), 1), smoothing - 1.0))
            if smoothing:
                d_scores -= smoothing / weight.shape[0]
            if d_bias is not None:
                d_bias += d_scores.sum(dim=0)
            d_scores = d_scores.to(products)
            if products == weight.dtype:
                torch.mm(d_scores, table, out=d_h)
                d_weight.addmm_(d_scores.t(), h)
            else:
                d_h.copy_(d_scores @ table)
                d_weight += d_scores.t() @ h
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        return d_hidden * d_loss, d_weight * d_loss, None if d_bias is None else d_bias * d_loss, None, None, None
