"""The output layer: from hidden states to logits."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mini_tf.nn.layers.copy_attention import Copies
from mini_tf.nn.layers.cross_entropy import cross_entropy
from mini_tf.nn.layers.feed_forward import ACTIVATIONS, Activation, activate


class OutputLayer(nn.Module):
    """Base class of heads; the weight of `linear` is trained with `head_lr`."""

    linear: nn.Linear

    @property
    def is_linear(self) -> bool:
        """Outputs are a linear function of the hidden state, without a bias."""
        return False


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
