"""No positions: an encoder then cannot tell orders of words apart; a decoder can, since what it sees grows (Haviv et al. 2022)."""

from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings


class Settings(PositionalEncodingSettings):
    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return PositionalEncoding()
