"""Text generation: a decoder continues prompts."""

from mini_tf.pipelines._continuation import ContinuationSettings


class Settings(ContinuationSettings):
    pass
