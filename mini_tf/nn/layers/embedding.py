"""From token ids to embeddings: tables of tokens, subwords and n-grams, positions, token types, norm, projection."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mini_tf.nn.layers.kernels import Dropout
from mini_tf.nn.layers.ngram_features import NGrams
from mini_tf.nn.layers.word_characters import Subwords
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens


class Embedding(nn.Module):
    """The input layer of a stack. `scale` multiplies the token embeddings before anything is added.

    project: from the width E of the tables to d_model; None if they are equal.
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        positional_encoding: PositionalEncoding,
        ngrams: NGrams | None,
        types: nn.Embedding | None,
        norm: nn.Module,
        scale: float,
        dropout_rate: float,
        *,
        project: nn.Linear | None = None,
        subwords: Subwords | None = None,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.ngrams, self.subwords = ngrams, subwords
        self.types = types
        self.position = positional_encoding
        self.norm = norm
        self.scale = scale
        self.dropout = Dropout(dropout_rate)
        self.project = project

    @property
    def n_previous(self) -> int:
        """Number of previous tokens that the embedding of a token depends on."""
        return 0 if self.ngrams is None else self.ngrams.n_previous

    def spell(self, texts: Sequence[str]) -> None:
        """Tell the subwords the text of each token id, with a space where it begins a word."""
        if self.subwords is not None:
            self.subwords.spell(texts)

    def start(self, batch: int) -> Int[Tensor, "B n_previous"]:
        """Previous ids at the beginning of a document: all V, the id that means "no token"."""
        vocabulary_size, device = self.tokens.num_embeddings, self.tokens.weight.device
        return torch.full((batch, self.n_previous), vocabulary_size, device=device)

    def forward(
        self, inputs: Tokens, token_positions: TokenPositions, previous: Int[Tensor, "B n_previous"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """previous: ids of the tokens before these, None at the beginning."""
        x = self.tokens(inputs.ids)
        if self.scale != 1.0:
            x = x * self.scale
        if self.subwords is not None:
            x = x + self.subwords(inputs.ids)
        if self.ngrams is not None:
            x = x + self.ngrams(
                inputs.ids, self.start(inputs.ids.shape[0]) if previous is None else previous, token_positions
            )
        x = self.position.embed(x, token_positions)
        if self.types is not None:
            x = x + (self.types.weight[0] if inputs.types is None else self.types(inputs.types))
        embedded: Tensor = self.dropout(self.norm(x))
        return embedded if self.project is None else self.project(embedded)
