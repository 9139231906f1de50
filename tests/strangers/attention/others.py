"""A token attends to all but itself, as in CBOW."""

from typing import ClassVar

from mini_tf.nn.heads import Headed, HeadedSettings
from mini_tf.nn.mixer import AttentionDims, LayerSpec
from mini_tf.nn.token_positions import Visibility


class Settings(HeadedSettings):
    SEES_SELF: ClassVar[bool] = False

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Others":
        return Others(self, dims, layer)


class Others(Headed):
    def view(self, visibility: Visibility) -> Visibility:
        return visibility if self.cross else visibility.without_self()
