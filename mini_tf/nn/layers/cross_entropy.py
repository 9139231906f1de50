"""Linear output layer and cross-entropy fused, so that the logits of all targets never exist at once.

Targets are processed in chunks; the logits of a chunk are turned into their gradient, and that into the gradients of
the hidden states and of the weight, so nothing of size (T, V) is kept for the backward pass. On a CPU a chunk fits into
the cache. On a GPU it keeps all of it busy, and torch.compile fuses what is between the matrix products: logits are
written and read in the dtype of the products, and exponentials summed in fp32. After Wijmans et al. 2024, "Cut Your
Losses", arXiv:2411.09009.

With copied tokens the loss is that of the mixture p(w) = p_gen p_vocab(w) (1 + odds(w) / p_vocab(w)), where the odds
are not 0 only for the M tokens of a source (`Copies`); nothing else of size V is needed.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from mini_tf.nn.layers.copy_attention import Copies

CHUNK = 2**19
"""Number of logits of a chunk on a CPU: 2 MiB in fp32, which fits into the cache of a core."""
LARGE_CHUNK = 2**28
"""Largest number of logits of a chunk on a GPU, 512 MiB in bf16: each chunk reads and writes the weight's gradient."""

IGNORED = -100
"""The label of a target that adds exactly 0 to the loss and to all gradients; `ignore_index` of torch's losses."""

FEWEST = 64
"""Minimum number of targets of a chunk on a CPU, for efficient matrix products."""

PRODUCTS = {"cpu": frozenset({torch.bfloat16}), "cuda": frozenset({torch.bfloat16, torch.float16})}
"""Dtypes of autocast, by device, in which the logits of a chunk are computed."""
COMPILED = frozenset({"cuda"})
"""Devices whose compiled graphs have chunks."""


def cross_entropy(
    hidden: Float[Tensor, "T D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None,
    labels: Int[Tensor, " T"],
    smoothing: float = 0.0,
    copies: Copies | None = None,
) -> Float[Tensor, ""]:
    """The sum over T of -log softmax(hidden weight^T + bias)[label], in nats.

    A label may be `IGNORED`. smoothing: label smoothing over all V (Szegedy et al. 2016, arXiv:1512.00567, section 7).
    copies: of each target, for the loss of the mixture, -log p(label), with the same smoothing over all V.
    """
    device, products = hidden.device.type, weight.dtype
    if autocast := torch.is_autocast_enabled(device):
        products = torch.get_autocast_dtype(device)
    supported = (
        products in PRODUCTS.get(device, ()) if autocast else device in PRODUCTS and hidden.dtype == weight.dtype
    )
    fused = supported and weight.dtype in (torch.float32, torch.float64)
    if not fused or not torch.is_grad_enabled() or (torch.compiler.is_compiling() and device not in COMPILED):
        logits = F.linear(hidden, weight, bias)
        # Half precision is too coarse for a sum of exponentials.
        logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
        logits = logits if copies is None else copies.mix(logits)
        return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
    odds, ids = (None, None) if copies is None else (copies.log_odds(), copies.ids)
    loss: Tensor = _CrossEntropy.apply(hidden, weight, bias, odds, labels, ids, smoothing, products)
    return loss if copies is None else loss - (copies.log_p_gen() * (labels != IGNORED)).sum()


def target_chunks(n_targets: int, vocabulary_size: int) -> list[slice]:
    """Equal chunks of the targets, each with at most `LARGE_CHUNK` logits.

    In a compiled graph n_targets may be a symbol: the graph is made for a number of chunks, not for one of targets.
    """
    n_chunks = -(-n_targets * vocabulary_size // LARGE_CHUNK)
    size = -(-n_targets // max(1, n_chunks))
    return [slice(i * size, (i + 1) * size if i + 1 < n_chunks else n_targets) for i in range(n_chunks)]


def chunks_on(device: str, n_targets: int, vocabulary_size: int) -> list[slice]:
    """Chunks of the targets that suit a type of device."""
    if device != "cpu" or torch.compiler.is_compiling():
        return target_chunks(n_targets, vocabulary_size)
    size = max(FEWEST, CHUNK // vocabulary_size)
    return [slice(first, first + size) for first in range(0, n_targets, size)]


class _CrossEntropy(torch.autograd.Function):
    """With p = softmax(logits) and q = (1 - smoothing) onehot(label) + smoothing / V: d loss / d logits = p - q.

    With log-odds (T, M) of the tokens `ids` (T, M) the loss is the sum of -q log(p + odds): each q is multiplied by the
    share of p in p + odds, and p by the sum of these. Gradients are computed in the forward pass. Matrix products have
    the dtype `products`, all else at least fp32.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, odds: Tensor | None, *targets: Any
    ) -> Tensor:
        labels, ids, smoothing, products = targets
        d_hidden, d_odds = torch.empty_like(hidden), None if odds is None else torch.empty_like(odds)
        d_weight = torch.zeros_like(weight)
        d_bias = None if bias is None else torch.zeros_like(bias)
        # Not updated in place: the gradients of a compiled function that returns such a tensor are 0 in torch 2.11.
        loss = weight.new_zeros(())
        table, hidden, added = weight.to(products), hidden.to(products), None if bias is None else bias.to(products)
        for part in chunks_on(weight.device.type, len(labels), weight.shape[0]):
            h, is_target = hidden[part], (labels[part] != IGNORED)[:, None]
            label = labels[part][:, None].masked_fill(~is_target, 0)
            logits = F.log_softmax(F.linear(h, table, added).to(weight.dtype), dim=-1)
            loss = loss - (logits.gather(1, label) * is_target).sum() * (1 - smoothing)
            if smoothing:
                loss = loss - (logits * is_target).sum() * (smoothing / weight.shape[0])
            copied = None
            if odds is not None and ids is not None and d_odds is not None:
                q = ((ids[part] == label).to(weight.dtype) * (1 - smoothing) + smoothing / weight.shape[0]) * is_target
                ratio = odds[part] - logits.gather(1, ids[part])
                loss = loss + (q * F.logsigmoid(-ratio)).sum()
                copied = q * ratio.sigmoid()
                d_odds[part] = -copied
            d_logits = logits.exp_()
            if copied is not None:
                d_logits *= 1 - copied.sum(dim=1, keepdim=True)
            if torch.compiler.is_compiling():  # fused with what is around it, which a scatter would not be
                is_label = torch.arange(weight.shape[0], device=label.device) == label
                d_logits = torch.where(is_label, d_logits + (smoothing - 1.0), d_logits)
            else:
                d_logits.scatter_add_(1, label, logits.new_full((len(label), 1), smoothing - 1.0))
            if smoothing:
                d_logits -= smoothing / weight.shape[0]
            if copied is not None and ids is not None:
                d_logits.scatter_add_(1, ids[part], copied)
            d_logits *= is_target
            if d_bias is not None:
                d_bias += d_logits.sum(dim=0)
            if products == torch.float16:
                factor = _factor(h)
                d_logits = (d_logits * factor).to(products)
                d_hidden[part] = (d_logits @ table).to(weight.dtype) / factor
                d_weight += (d_logits.t() @ h).to(weight.dtype) / factor
                continue
            d_logits = d_logits.to(products)
            if products == weight.dtype and not torch.compiler.is_compiling():
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
        d_hidden, d_weight, d_bias, d_odds = (None if grad is None else grad * d_loss for grad in ctx.saved_tensors)
        return d_hidden, d_weight, d_bias, d_odds, None, None, None, None


def _factor(hidden: Float[Tensor, "T D"]) -> Float[Tensor, ""]:
    """Of gradients of logits in fp16, each at most 1: no sum over T overflows, and little falls below fp16's range."""
    largest = hidden.abs().amax().float() * len(hidden)
    return (2.0**15 / largest).clamp(max=2.0**10)
