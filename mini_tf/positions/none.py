"""No positions: an encoder then cannot tell orders of words apart; a decoder can, since what it sees grows (Haviv et al. 2022)."""

from mini_tf.nn.position import Position, PositionSettings


class Settings(PositionSettings):
    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> Position:
        return Position()
