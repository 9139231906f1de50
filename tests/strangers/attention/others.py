"""A token attends to all but itself, as in CBOW."""

from typing import ClassVar

from mini_tf.nn.heads import Headed, HeadedSettings
from mini_tf.nn.mixer import Place, Width
from mini_tf.nn.places import Visibility


class Settings(HeadedSettings):
    SEES_SELF: ClassVar[bool] = False

    def build(self, width: Width, place: Place) -> "Others":
        return Others(self, width, place)


class Others(Headed):
    def view(self, visibility: Visibility) -> Visibility:
        return visibility if self.cross else visibility.without_self()
