"""`minitf generate`: text out of a trained model, by prompts, by lines or in a loop."""

from mini_tf.cli.generate.command import generate

__all__ = ["generate"]
