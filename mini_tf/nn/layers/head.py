"""Output layers: from hidden states to logits of tokens; heads of tasks: classes, a number, one logit per token."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mini_tf.nn.layers.copy_attention import Copies
from mini_tf.nn.layers.cross_entropy import cross_entropy
from mini_tf.nn.layers.feed_forward import ACTIVATIONS, Activation, activate
from mini_tf.nn.layers.kernels import Dropout
from mini_tf.nn.layers.ngram_features import LinearFeatures
from mini_tf.nn.tokens import Tokens


class OutputLayer(nn.Module):
    """Base class of heads; the weight of `linear` is trained with `head_lr`."""

    linear: nn.Linear

    @property
    def is_linear(self) -> bool:
        """Outputs are a linear function of the hidden state, without a bias."""
        return False

    def arguments(self) -> Mapping[str, Any]:
        """What makes another layer of the class: numbers, texts, or modules with `arguments`; for export as code.

        Raises NotImplementedError if it is not known.
        """
        raise NotImplementedError


class Head(OutputLayer):
    """Logits from the token embedding's weight (tied) or a separate weight.

    transform: from hidden states (D) to the width of the table; None if it is the same. With `Transform`, BERT's
    masked-LM head: dense, activation, norm, output layer with bias (Devlin et al. 2018, arXiv:1810.04805; the released
    code).
    """

    def __init__(self, table: nn.Embedding, tied: bool, transform: nn.Module | None, bias: bool) -> None:
        super().__init__()
        vocabulary_size, d_embedding = table.weight.shape
        self.transform = transform
        self.linear = nn.Linear(d_embedding, vocabulary_size, bias=bias)
        if tied:
            # One tensor with two names; files store it by the embedding's name.
            self.linear.weight = table.weight

    @property
    def is_linear(self) -> bool:
        parts = [self.linear] if self.transform is None else [self.linear, self.transform]
        return all(isinstance(part, nn.Linear) and part.bias is None for part in parts)

    def forward(
        self, hidden: Float[Tensor, "*at D"], candidates: Int[Tensor, "*each W"] | None = None
    ) -> Float[Tensor, "*at V"]:
        """Logits over the vocabulary, or over the token ids `candidates`: (W,), or (*at, W) for each hidden state."""
        if self.transform is not None:
            hidden = self.transform(hidden)
        weight, bias = self.linear.weight, self.linear.bias
        if candidates is None:
            return F.linear(hidden, weight, bias)
        if candidates.dim() == 1:
            return F.linear(hidden, weight[candidates], None if bias is None else bias[candidates])
        logits = (weight[candidates] @ hidden[..., None]).squeeze(-1)  # (*at,W,D) @ (*at,D,1) -> (*at,W)
        return logits if bias is None else logits + bias[candidates]

    def cross_entropy(
        self,
        hidden: Float[Tensor, "T D"],
        labels: Int[Tensor, " T"],
        smoothing: float = 0.0,
        copies: Copies | None = None,
    ) -> Float[Tensor, ""]:
        """The sum of the cross-entropies of `labels` in nats, without computing all logits at once."""
        if self.transform is not None:
            hidden = self.transform(hidden)
        return cross_entropy(hidden, self.linear.weight, self.linear.bias, labels, smoothing, copies)


class Transform(nn.Module):
    """dense -> activation -> norm, at the targets. d_embedding: width of the output; default d_model."""

    def __init__(self, d_model: int, activation: Activation, norm: nn.Module, d_embedding: int | None = None) -> None:
        super().__init__()
        self.activation = activation
        self.dense = nn.Linear(d_model, ACTIVATIONS[activation].n_inputs * (d_embedding or d_model))
        self.norm = norm

    def forward(self, hidden: Tensor) -> Tensor:
        y: Tensor = self.norm(activate(self.activation, self.dense(hidden)))
        return y


Pool = Literal["first", "last", "text_end", "mean", "max", "attention"]
TOKEN_POOLS = ("first", "last", "text_end")
"""Pooling that takes one token of each row."""
Dense = Literal["tanh", "gelu", "relu", "gelu_norm"]
"""Activation of a dense layer before the output layer of a task: of BERT and RoBERTa, of ELECTRA, of DistilBERT, and of
ModernBERT, with a norm behind it.
"""
_DENSE: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "relu": F.relu,
    "gelu_norm": F.gelu,
}
NORMED = frozenset({"gelu_norm"})
"""Of them, those with a norm."""


class DenseLayer(nn.Linear):
    """linear -> activation, and a norm behind it if there is one, before the output layer of a task."""

    def __init__(self, d_model: int, activation: Dense, norm: nn.Module | None = None) -> None:
        super().__init__(d_model, d_model)
        self.weight.data.normal_(0.0, d_model**-0.5)
        self.bias.data.zero_()
        self.word, self.activation, self.norm = activation, _DENSE[activation], norm

    def arguments(self) -> Mapping[str, Any]:
        """Without the norm, which the settings of the model make."""
        return {"d_model": self.in_features, "activation": self.word}

    def forward(self, hidden: Float[Tensor, "*at D"]) -> Float[Tensor, "*at D"]:
        y = self.activation(super().forward(hidden))
        return y if self.norm is None else self.norm(y)


class TaskHead(OutputLayer):
    """dropout -> linear, replacing the output layer (Devlin et al. 2018, arXiv:1810.04805, section 4.1).

    wide: its outputs are added by the task. query (D,): of attention pooling. dense: a layer before it, as in BERT's
    released code. network_scale: what multiplies its outputs beside `wide` in evaluation, if it is fitted.
    """

    network_scale: Tensor | None

    def __init__(
        self,
        d_model: int,
        n_outputs: int,
        dropout_rate: float,
        wide: LinearFeatures | None = None,
        pools_by_attention: bool = False,
        dense: DenseLayer | None = None,
        bias: bool = True,
        *,
        scales_network: bool = False,
    ) -> None:
        super().__init__()
        self.dropout = Dropout(dropout_rate)
        self.wide = wide
        self.register_buffer("network_scale", torch.ones(()) if scales_network else None)
        self.query = nn.Parameter(torch.zeros(d_model)) if pools_by_attention else None
        self.dense = dense
        self.linear = nn.Linear(d_model, n_outputs, bias=bias)
        self.linear.weight.data.normal_(0.0, d_model**-0.5)
        if bias:
            self.linear.bias.data.zero_()

    def arguments(self) -> Mapping[str, Any]:
        return {
            "d_model": self.linear.in_features,
            "n_outputs": self.linear.out_features,
            "dropout_rate": self.dropout.rate,
            "wide": self.wide,
            "pools_by_attention": self.query is not None,
            "dense": self.dense,
            "bias": self.linear.bias is not None,
            "scales_network": self.network_scale is not None,
        }

    def forward(
        self, hidden: Float[Tensor, "*at D"], candidates: Int[Tensor, " W"] | None = None
    ) -> Float[Tensor, "*at C"]:
        """All outputs; `candidates` must be None, as there is no vocabulary."""
        if candidates is not None:
            raise ValueError("a task head has no vocabulary")
        if self.dense is not None:
            hidden = self.dense(self.dropout(hidden))
        outputs: Tensor = self.linear(self.dropout(hidden))
        return outputs


class NoHead(nn.Module):
    """In place of a head: the outputs are the hidden states."""

    def forward(self, hidden: Float[Tensor, "*at D"], candidates: None = None) -> Float[Tensor, "*at D"]:
        return hidden


def token_index(pool: Pool, inputs: Tokens) -> Int[Tensor, " B"]:
    """Flat index into (B, L) of the token of each row that `pool`, one of TOKEN_POOLS, takes: the first one, the last
    one, or the one before the last.
    """
    rows, length = inputs.ids.shape
    first = torch.arange(rows, device=inputs.ids.device) * length
    if pool == "first":
        return first
    return first + is_token(inputs).sum(1) - (1 if pool == "last" else 2)


def pooled(
    pool: Pool, hidden: Float[Tensor, "B L D"], inputs: Tokens, query: Float[Tensor, " D"] | None = None
) -> Float[Tensor, "B D"]:
    """Mean or maximum over the tokens of each row without padding, or their mean with weights softmax(hidden . query).

    Source of the last: Lin et al. 2017, arXiv:1703.03130, with one query.
    """
    not_padding = is_token(inputs)[..., None]
    if pool == "max":
        return hidden.masked_fill(~not_padding, -torch.inf).amax(1)
    kept = hidden.masked_fill(~not_padding, 0.0)
    if query is None:
        return kept.sum(1) / not_padding.sum(1)
    weights = (kept * query).sum(-1, keepdim=True).masked_fill(~not_padding, -torch.inf).softmax(dim=1)
    return (weights * kept).sum(1)


def is_token(inputs: Tokens) -> Bool[Tensor, "B L"]:
    """False at padding."""
    segments = None if inputs.token_positions is None else inputs.token_positions.segments
    return torch.ones_like(inputs.ids, dtype=torch.bool) if segments is None else segments != 0
