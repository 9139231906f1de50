"""`minitf generate` and `minitf chat`: text out of a trained model, by prompts, by lines or in a loop."""

from mini_tf.cli.generate.command import chat, generate

__all__ = ["chat", "generate"]
