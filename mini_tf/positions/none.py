"""No positional encoding: an encoder is then permutation-equivariant; a decoder can infer order from the causal mask.

Source: Haviv et al. 2022, arXiv:2203.16634.
"""

from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings


class Settings(PositionalEncodingSettings):
    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return PositionalEncoding()
