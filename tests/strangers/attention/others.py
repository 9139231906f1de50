"""A token attends to all but itself, as in CBOW."""

from mini_tf.nn.attention import MultiHeadAttention, MultiHeadSettings
from mini_tf.nn.mixer import AttentionDims, LayerSpec
from mini_tf.nn.token_positions import Visibility


class Settings(MultiHeadSettings):
    SUPPORTS = MultiHeadSettings.SUPPORTS | {"excludes_self"}

    @property
    def restriction(self) -> str:
        return "without itself"

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Others":
        return Others(self, dims, layer)


class Others(MultiHeadAttention):
    def restrict(self, visibility: Visibility) -> Visibility:
        return visibility if self.is_cross_attn else visibility.without_self()
