"""Fill mask: an encoder predicts the tokens at each [MASK]."""

from mini_tf.pipelines._mask_filling import MaskFillingSettings


class Settings(MaskFillingSettings):
    pass
