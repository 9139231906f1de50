"""From ids to vectors: a table of tokens, positions where they attach here, segment types, norm and dropout."""

from jaxtyping import Float
from torch import Tensor, nn

from mini_tf.nn.places import Places
from mini_tf.nn.position import Position
from mini_tf.nn.tokens import Tokens


class Embedding(nn.Module):
    """Owner of the position module. `scale` multiplies the token vectors before anything is added."""

    def __init__(
        self, vocabulary_size: int, d_model: int, position: Position, n_types: int, norm: nn.Module, scale: float, dropout_rate: float
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary_size, d_model)
        self.types = nn.Embedding(n_types, d_model) if n_types else None
        self.position = position
        self.norm = norm
        self.scale = scale
        self.dropout = nn.Dropout(dropout_rate)

    def forward(self, inputs: Tokens, places: Places) -> Float[Tensor, "B L D"]:
        x = self.tokens(inputs.ids)
        if self.scale != 1.0:
            x = x * self.scale
        x = self.position.embed(x, places)
        if self.types is not None:
            x = x + (self.types.weight[0] if inputs.types is None else self.types(inputs.types))
        embedded: Tensor = self.dropout(self.norm(x))
        return embedded
