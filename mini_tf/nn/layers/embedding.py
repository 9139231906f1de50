"""From ids to vectors: tables of tokens and n-grams, positions where they attach here, segment types, norm and dropout."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mini_tf.nn.layers.dropout import Dropout
from mini_tf.nn.layers.ngrams import NGrams
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens


class Embedding(nn.Module):
    """Owner of the position module. `scale` multiplies the token vectors before anything is added."""

    def __init__(
        self,
        tokens: nn.Embedding,
        position: PositionalEncoding,
        ngrams: NGrams | None,
        types: nn.Embedding | None,
        norm: nn.Module,
        scale: float,
        dropout_rate: float,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.ngrams = ngrams
        self.types = types
        self.position = position
        self.norm = norm
        self.scale = scale
        self.dropout = Dropout(dropout_rate)

    @property
    def reach(self) -> int:
        """Tokens before its own that the vector of a token depends on."""
        return 0 if self.ngrams is None else self.ngrams.reach

    def start(self, batch: int) -> Int[Tensor, "B reach"]:
        """What stands before the first token: no token."""
        vocabulary_size, device = self.tokens.num_embeddings, self.tokens.weight.device
        return torch.full((batch, self.reach), vocabulary_size, device=device)

    def forward(
        self, inputs: Tokens, token_positions: TokenPositions, before: Int[Tensor, "B reach"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """before: the tokens that stood before these, where something did."""
        x = self.tokens(inputs.ids)
        if self.scale != 1.0:
            x = x * self.scale
        if self.ngrams is not None:
            x = x + self.ngrams(inputs.ids, self.start(len(inputs.ids)) if before is None else before, token_positions)
        x = self.position.embed(x, token_positions)
        if self.types is not None:
            x = x + (self.types.weight[0] if inputs.types is None else self.types(inputs.types))
        embedded: Tensor = self.dropout(self.norm(x))
        return embedded
