"""GPT-2 and BERT in plain torch, as a person would write them by hand: the reference of the regression guard.

Sources: Radford et al. 2019; Devlin et al. 2018, arXiv:1810.04805. No dropout. The scores of BERT are made at the
judged positions only.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .shapes import Shape

Cache = list[tuple[Tensor, Tensor]]


class Attention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, bias: bool, causal: bool) -> None:
        super().__init__()
        self.n_heads, self.causal = n_heads, causal
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.out = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        b, n, d = x.shape
        q, k, v = (part.view(b, n, self.n_heads, -1).transpose(1, 2) for part in self.qkv(x).split(d, dim=2))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal and past is None)
        return self.out(y.transpose(1, 2).reshape(b, n, d)), (k, v)


class GPTLayer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d = shape.d_model
        self.norm1, self.norm2 = nn.LayerNorm(d, bias=False), nn.LayerNorm(d, bias=False)
        self.attention = Attention(d, shape.n_heads, bias=False, causal=True)
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, kept = self.attention(self.norm1(x), past)
        x = x + y
        return x + self.down(F.gelu(self.up(self.norm2(x)))), kept


class GPT(nn.Module):
    """Learned positions, a norm before each part, GELU, a tied head, no biases."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.d_model)
        self.positions = nn.Embedding(shape.context, shape.d_model)
        self.layers = nn.ModuleList(GPTLayer(shape) for _ in range(shape.n_layers))
        self.norm = nn.LayerNorm(shape.d_model, bias=False)

    def read(self, ids: Tensor, past: Cache | None = None) -> tuple[Tensor, Cache]:
        """Hidden vectors (B, L, D) of `ids`, which follow what `past` remembers, and what is remembered then."""
        begin = past[0][0].shape[2] if past else 0
        x = self.tokens(ids) + self.positions.weight[begin : begin + ids.shape[1]]
        kept: Cache = []
        for i, layer in enumerate(self.layers):
            x, new = layer(x, past[i] if past else None)
            kept.append(new)
        return self.norm(x), kept

    def forward(self, ids: Tensor, labels: Tensor, at: Tensor | None = None) -> Tensor:
        """The mean loss in nats of `labels` (B·L,)."""
        scores = F.linear(self.read(ids)[0], self.tokens.weight)
        return F.cross_entropy(scores.flatten(0, 1), labels)

    @torch.inference_mode()
    def write(self, ids: Tensor, n: int, cached: bool) -> Tensor:
        """`ids` (B, L) and the `n` likeliest tokens after them, one by one."""
        past: Cache | None = None
        for _ in range(n):
            hidden, kept = self.read(ids if past is None else ids[:, -1:], past)
            past = kept if cached else None
            likeliest = F.linear(hidden[:, -1], self.tokens.weight).argmax(-1, keepdim=True)
            ids = torch.cat([ids, likeliest], dim=1)
        return ids


class BERTLayer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d = shape.d_model
        self.attention = Attention(d, shape.n_heads, bias=True, causal=False)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.norm1, self.norm2 = nn.LayerNorm(d, eps=1e-12), nn.LayerNorm(d, eps=1e-12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x)[0])
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class BERT(nn.Module):
    """Learned positions, two segment types, a norm after each part, the head with its own dense layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d = shape.d_model
        self.tokens = nn.Embedding(shape.vocabulary, d)
        self.positions = nn.Embedding(shape.context, d)
        self.types = nn.Embedding(2, d)
        self.norm, self.head_norm = nn.LayerNorm(d, eps=1e-12), nn.LayerNorm(d, eps=1e-12)
        self.layers = nn.ModuleList(BERTLayer(shape) for _ in range(shape.n_layers))
        self.dense, self.bias = nn.Linear(d, d), nn.Parameter(torch.zeros(shape.vocabulary))

    def forward(self, ids: Tensor, labels: Tensor, at: Tensor) -> Tensor:
        """The mean loss in nats of `labels` (T,), which belong at the flat positions `at` (T,)."""
        x = self.norm(self.tokens(ids) + self.positions.weight[: ids.shape[1]] + self.types.weight[0])
        for layer in self.layers:
            x = layer(x)
        hidden = self.head_norm(F.gelu(self.dense(x.flatten(0, 1)[at])))  # at the judged positions only
        return F.cross_entropy(F.linear(hidden, self.tokens.weight, self.bias), labels)


def plain(shape: Shape, seed: int = 0) -> Any:
    """The model with weights that depend on `seed` alone: so large, biases and norms too, that each has its part in the
    loss.
    """
    torch.manual_seed(seed)
    model = BERT(shape) if shape.masked else GPT(shape)
    for name, parameter in model.named_parameters():
        is_scale = "norm" in name and name.endswith("weight")
        is_table = name.startswith(("tokens", "positions", "types"))
        deviation = 0.1 if parameter.dim() == 1 or is_table else parameter.shape[1] ** -0.5
        with torch.no_grad():
            parameter.normal_(1.0 if is_scale else 0.0, deviation)
    return model


def decays(model: nn.Module) -> Iterator[dict[str, Any]]:
    """The groups of torch.optim.AdamW: as nanoGPT's, but nothing decays, so that rules about what decays change no
    result.
    """
    yield {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.0}
    yield {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}
