"""The shapes that are trained and written with, and what a step of each costs by arithmetic."""

from dataclasses import dataclass

MASK_RATE = 0.15


@dataclass(frozen=True)
class Shape:
    """masked: an encoder that names hidden tokens (BERT, with its head); else a decoder that names the next one
    (GPT-2).
    """

    n_layers: int
    d_model: int
    n_heads: int
    context: int
    batch: int
    vocabulary: int
    masked: bool = False

    @property
    def tokens(self) -> int:
        """Tokens a step."""
        return self.batch * self.context

    @property
    def flops(self) -> float:
        """Multiplications and additions of a step, forward and backward: 6 a weight of a matrix and token, and
        attention's.

        Attention counts whole, causal or not, as PaLM's and nanoGPT's MFU do. The head works at the judged positions
        only.
        """
        layers = self.n_layers * (6 * 12 * self.d_model**2 + 12 * self.d_model * self.context)
        head = 6 * self.d_model * (self.vocabulary + (self.d_model if self.masked else 0))
        judged = MASK_RATE if self.masked else 1.0
        return self.tokens * (layers + judged * head)


SHAPES = {
    "4x128": Shape(4, 128, 4, 64, 12, 65),
    "6x384": Shape(6, 384, 6, 256, 16, 65),
    "encoder": Shape(4, 256, 4, 128, 32, 8192, masked=True),
    "12x768": Shape(12, 768, 12, 1024, 16, 50304),
    "tiny": Shape(2, 32, 2, 16, 4, 65),
    "tiny-encoder": Shape(2, 32, 2, 16, 4, 200, masked=True),
}
"""The decoders are nanoGPT's (README, on a CPU; config/train_shakespeare_char.py); 12x768 is GPT-2's smallest, for a
GPU; the tiny ones are for tests.
"""
