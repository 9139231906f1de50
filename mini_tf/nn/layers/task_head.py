"""From hidden vectors to the answer of a task: scores of classes, or one number."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mini_tf.nn.layers.dropout import Dropout
from mini_tf.nn.layers.head import OutputLayer
from mini_tf.nn.tokens import Tokens

Pool = Literal["first", "last", "mean", "max"]


class TaskHead(OutputLayer):
    """dropout -> linear, in the place of a head over the vocabulary (Devlin et al. 2018, arXiv:1810.04805, section 4.1)."""

    def __init__(self, d_model: int, n_outputs: int, dropout_rate: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout_rate)
        self.linear = nn.Linear(d_model, n_outputs)
        self.linear.weight.data.normal_(0.0, d_model**-0.5)
        self.linear.bias.data.zero_()

    def forward(self, hidden: Float[Tensor, "*at D"], words: Int[Tensor, " W"] | None = None) -> Float[Tensor, "*at C"]:
        """Scores of all answers; there is no vocabulary to choose `words` from."""
        if words is not None:
            raise ValueError("an answer has no vocabulary")
        scores: Tensor = self.linear(self.dropout(hidden))
        return scores


def token_index(pool: Literal["first", "last"], inputs: Tokens) -> Int[Tensor, " B"]:
    """The flat index into (B, L) of the first or last token of each row."""
    rows, length = inputs.ids.shape
    first = torch.arange(rows, device=inputs.ids.device) * length
    return first if pool == "first" else first + _real(inputs).sum(1) - 1


def pooled(pool: Literal["mean", "max"], hidden: Float[Tensor, "B L D"], inputs: Tokens) -> Float[Tensor, "B D"]:
    """One vector a row, of all its tokens that are not padding."""
    real = _real(inputs)[..., None]
    if pool == "max":
        return hidden.masked_fill(~real, -torch.inf).amax(1)
    return hidden.masked_fill(~real, 0.0).sum(1) / real.sum(1)


def _real(inputs: Tokens) -> Tensor:
    segments = None if inputs.token_positions is None else inputs.token_positions.segments
    return torch.ones_like(inputs.ids, dtype=torch.bool) if segments is None else segments != 0
