"""All-attention: every query attends to persistent keys and values beside those of the tokens, in one softmax.

These are parameters. With enough of them a layer needs no feed-forward layer, whose hidden units they resemble: a key
that is compared with the token, a value that is added. They have no position: queries are compared with them as they
are before the rotation of a positional encoding, and without its bias. `qk_norm` normalizes these keys, too. A query
that attends to no token, such as padding, attends to them alone.

As in the paper, the parameters are multiplied by sqrt(d_k) and sqrt(n), so that an optimizer with steps of equal size,
such as Adam, moves vectors as fast as their width and number require. Unlike there, they are matrices as those of
linear layers: with the same initialization (`init_std`; in the paper keys and values begin with variance 1) and weight
decay, updated by Muon and adapted by LoRA.

On a CPU these are two calls of the fused kernel. Each returns its output and the logarithm of its sum, with which the
outputs are merged. The backward pass of the kernel needs only the output and that logarithm: with those of the joint
softmax, two calls give its exact gradient. So shared keys are not copied for each row, and the causal kernel needs no
mask. Elsewhere, and with dropout, a learned bias or empty tensors, shared keys are put before those of each row.
Source: Sukhbaatar et al. 2019, arXiv:1907.01470, sections 4.2 and 5.1.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mini_tf.nn.attention import MultiHeadAttention, MultiHeadSettings, attention_scores
from mini_tf.nn.layers.attention_kernels import Kernel, attend, fused_attention, repeat_kv
from mini_tf.nn.layers.kernels import FusedLinear
from mini_tf.nn.mixer import AttentionDims, ExplicitAttention, LayerSpec, SoftmaxAttention
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import Visibility

KeysValues = tuple[Tensor, Tensor]
"""Keys and values of no token: (G, N, K) and (G, N, V), or (1, H, N, K) and (1, H, N, V) for every head."""


class AllAttention(MultiHeadAttention):
    """Multi-head attention with n persistent vectors of each key-value head."""

    STANDARD_SOFTMAX = True

    def __init__(self, settings: MultiHeadSettings, n: int, dims: AttentionDims, layer: LayerSpec) -> None:
        super().__init__(settings, dims, layer)
        self.persistent = PersistentVectors(n, dims)

    def persistent_vectors(self) -> KeysValues:
        keys, values = self.persistent()
        return self.normed(keys, self.k_norm), values

    def project(self, x: Tensor, memory: Tensor | State, visibility: Visibility) -> tuple[Tensor, Tensor, Tensor]:
        """Beside rotated queries, in the second half of (B, H, L, 2 K), those for persistent keys."""
        if not self._rotary:
            return super().project(x, memory, visibility)
        n_heads = self.dims.n_heads
        q_and_k, v = self.project_heads(x, memory)
        q, k = self.rotated(q_and_k, visibility).split([n_heads, self.dims.n_kv_heads], dim=2)
        q = torch.cat([q, self.normed(q_and_k[:, :, :n_heads], self.q_norm)], dim=-1)
        return q.transpose(1, 2), k.transpose(1, 2), v

    def attend(
        self,
        q: Float[Tensor, "B H L _"],
        k: Float[Tensor, "B G M K"],
        v: Float[Tensor, "B G M V"],
        visibility: Visibility,
    ) -> Float[Tensor, "B H L V"]:
        dropout_rate = self.dropout_rate if self.training else 0.0
        return attend_to_all(
            q, k, v, self.persistent_vectors(), visibility, self.scale, self._bias_encoding, dropout_rate
        )

    def explicit(self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility) -> ExplicitAttention:
        """The first columns are those of persistent vectors."""
        q, k, v = self.project(x, memory, visibility)
        k, v = repeat_kv(k, q.shape[1]), repeat_kv(v, q.shape[1])
        keys, values = keys_of_heads(self.persistent_vectors(), q)
        scores = attention_scores(q, k, visibility, self.scale, self._bias_encoding)  # (B, H, L, M)
        shared = q[..., -k.shape[-1] :] @ keys.transpose(-1, -2) * self.scale  # (B, H, L, N)
        weights = torch.cat([shared, scores], dim=-1).softmax(dim=-1)
        return ExplicitAttention(weights, torch.cat([values.expand(len(v), -1, -1, -1), v], dim=2), values.shape[2])

    def fast_decoding(self) -> SoftmaxAttention | None:
        attention = super().fast_decoding()
        return None if attention is None else attention._replace(persistent=self.persistent_vectors())


class PersistentVectors(nn.Module):
    """n vectors of each key-value head."""

    def __init__(self, n: int, dims: AttentionDims) -> None:
        super().__init__()
        self.n, self.factors = n, (dims.d_k**0.5, n**0.5)
        self.keys, self.values = (FusedLinear(d, (n,) * dims.n_kv_heads, bias=False) for d in (dims.d_k, dims.d_v))

    def forward(self) -> tuple[Float[Tensor, "G N K"], Float[Tensor, "G N V"]]:
        """Keys and values."""
        keys, values = (linear.weight.unflatten(0, (-1, self.n)) for linear in (self.keys, self.values))
        return keys * self.factors[0], values * self.factors[1]


def attend_to_all(
    q: Float[Tensor, "B H L _"],
    k: Float[Tensor, "B G M K"],
    v: Float[Tensor, "B G M V"],
    persistent: KeysValues,
    visibility: Visibility,
    scale: float,
    encoding: PositionalEncoding | None = None,
    dropout_rate: float = 0.0,
) -> Float[Tensor, "B H L V"]:
    """`attend`, also to keys (G, N, K) and values (G, N, V) that all queries attend to, without a bias.

    q is (B, H, L, K), or (B, H, L, 2 K): then the second half is compared with persistent keys.
    """
    # With dropout, or elsewhere than on a CPU, persistent keys need a mask, which may have to be split.
    kernel = Kernel(partial(persistent_attention, shared=keys_of_heads(persistent, q)), causal=merges(q, dropout_rate))
    return attend(q, k, v, visibility, scale, encoding, dropout_rate, kernel)


def keys_of_heads(persistent: KeysValues, q: Float[Tensor, "B H L _"]) -> KeysValues:
    """Those of every head, in the dtype of the queries."""
    keys, values = (repeat_kv(t[None].to(q.dtype), q.shape[1]) for t in persistent)
    return keys, values


def merges(q: Tensor, dropout_rate: float) -> bool:
    """Two calls of the kernel are merged, which needs no causal mask."""
    return dropout_rate == 0 and q.device.type == "cpu"


def persistent_attention(
    q: Float[Tensor, "B H L _"],
    k: Float[Tensor, "B H M K"],
    v: Float[Tensor, "B H M V"],
    mask: Tensor | None,
    shared: KeysValues,
    scale: float,
    dropout_rate: float,
    causal: bool = False,
) -> Float[Tensor, "B H L V"]:
    """As `fused_attention`, with keys of every head that all rows share and that the mask does not apply to.

    q (B, H, L, 2 K): the second half is compared with shared keys.
    """
    learned = mask is not None and mask.requires_grad
    empty = not (q.numel() and k.numel())  # the kernel on a CPU divides by these sizes
    if learned or empty or not merges(q, dropout_rate):
        return _concatenated(q, k, v, mask, shared, scale, dropout_rate)
    d_k, d_v, dtype = k.shape[-1], v.shape[-1], q.dtype
    if dtype == torch.bfloat16 and torch.is_grad_enabled():  # see `fused_attention`
        q, k, v, shared = q.float(), k.float(), v.float(), (shared[0].float(), shared[1].float())
    queries, width = (q[..., :d_k], q[..., -d_k:]), max(d_k, d_v)
    q, shared_q, k, v, shared_k, shared_v = (_widened(t, width) for t in (*queries, k, v, *shared))
    bias = None if mask is None else _as_bias(mask, q.dtype)
    y: Tensor = _Merged.apply(causal, scale, bias, q, shared_q, k, v, shared_k, shared_v)
    return y[..., :d_v].to(dtype)


def _concatenated(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    shared: KeysValues,
    scale: float,
    dropout_rate: float,
) -> Tensor:
    """One call, under a mask; queries of twice the width have keys with zeros in the half that is not theirs."""
    if mask is not None:
        mask = F.pad(mask, (shared[0].shape[2], 0), value=mask.dtype == torch.bool)  # True, or a bias of 0
    zeros = q.shape[-1] - k.shape[-1]
    keys, values = (F.pad(shared[0], (zeros, 0)), F.pad(k, (0, zeros))), (shared[1], v)
    k, v = (torch.cat([shared_t.expand(len(t), -1, -1, -1), t], dim=2) for shared_t, t in (keys, values))
    return fused_attention(q, k, v, mask, scale, dropout_rate)


def _as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return (
        torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -torch.inf)
        if mask.dtype == torch.bool
        else mask.to(dtype)
    )


def _widened(t: Tensor, width: int) -> Tensor:
    """With zeros appended to its last axis: the fused kernel needs d_k = d_v."""
    return F.pad(t, (0, width - t.shape[-1])) if t.shape[-1] < width else t


class _Merged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, causal: bool, scale: float, bias: Tensor | None, *tensors: Tensor) -> Tensor:
        q, shared_q, k, v, shared_k, shared_v = tensors
        kernel, batch = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, len(q)
        y_row, log_sum_row = kernel(q, k, v, 0.0, causal, attn_mask=bias, scale=scale)
        if bias is not None:  # the kernel's logarithm for a query without visible keys is 0
            log_sum_row = log_sum_row.masked_fill((bias == -torch.inf).all(-1), -torch.inf)
        y_shared, log_sum_shared = kernel(_one_row(shared_q), shared_k, shared_v, 0.0, False, scale=scale)
        y_shared, log_sum_shared = _rows(y_shared, batch), _rows(log_sum_shared, batch)
        share = torch.sigmoid(log_sum_row - log_sum_shared)  # of the sum, by the keys of the row
        y = torch.lerp(y_shared, y_row, share.to(y_row.dtype)[..., None])
        ctx.save_for_backward(*tensors, y, torch.logaddexp(log_sum_row, log_sum_shared), bias)
        ctx.causal, ctx.scale = causal, scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        q, shared_q, k, v, shared_k, shared_v, y, log, bias = ctx.saved_tensors
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        dq, dk, dv = kernel(dy, q, k, v, y, log, 0.0, ctx.causal, attn_mask=bias, scale=ctx.scale)
        dy, shared_q, y, log = (_one_row(t) for t in (dy, shared_q, y, log))
        shared_dq, shared_dk, shared_dv = kernel(dy, shared_q, shared_k, shared_v, y, log, 0.0, False, scale=ctx.scale)
        return None, None, None, dq, _rows(shared_dq, len(q)), dk, dv, shared_dk, shared_dv


def _one_row(t: Tensor) -> Tensor:
    """(B, H, L, ..) -> (1, H, B L, ..): a view if t is one of (B, L, H, ..)."""
    return t.transpose(0, 1).flatten(1, 2)[None]


def _rows(t: Tensor, batch: int) -> Tensor:
    """The inverse of `_one_row`."""
    rows: Tensor = t[0].unflatten(1, (batch, -1))
    return rows.transpose(0, 1)
