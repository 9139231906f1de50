"""minitf: train, fine-tune, prompt and look inside small transformer language models."""

__version__ = "0.1.0"
