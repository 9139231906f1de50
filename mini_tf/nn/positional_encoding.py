"""The contract of every kind of position: three optional points to attach.

A file of `mini_tf/positions/` holds Settings with APPLIES_TO and `build`, and the module. One module serves a whole stack; its
owner is the embedding, mixers only refer to it.
"""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from mini_tf.nn.token_positions import TokenPositions
from mini_tf.recipe.kinds import Kind


class PositionalEncoding(nn.Module):
    """A position that attaches nowhere; subclasses name in `attaches` what they override."""

    applies_to: frozenset[str] = frozenset()
    max_positions: int | None = None
    """Number of positions, where no token may stand past the last one."""
    distance_only: bool = True
    """`bias` depends on the distance alone, so that it may be computed once for all queries and without them."""

    def embed(self, x: Float[Tensor, "B L D"], token_positions: TokenPositions) -> Float[Tensor, "B L D"]:
        """Positions added to, or joined with, the embeddings of tokens."""
        return x

    orthogonal: bool = True
    """`turn` keeps lengths and does the same to queries and keys; other ones are slower, since the fast decoder does not know them."""

    def rotate(
        self, x: Float[Tensor, "B L heads K"], token_positions: TokenPositions, n_queries: int | None = None
    ) -> Float[Tensor, "B L heads K"]:
        """Turn queries and keys by their positions; keys are kept turned. The first `n_queries` heads are queries, the others keys."""
        return x

    def bias(self, distance: Tensor, q: Tensor | None = None, k: Tensor | None = None) -> Tensor | None:
        """What is added to the scores at `distance` (B or 1, ...) from query back to key: (B or 1, H, ...).

        Where it is not `distance_only`, it is given the queries q (B, H, L, K) and keys k (B, H, M, K) that meet at distance (.., L, M).
        """
        return None


class PositionalEncodingSettings(Kind):
    PACKAGE = "positions"

    APPLIES_TO: ClassVar[frozenset[str]] = frozenset()
    """Where it applies_to: "embed" (to the embeddings), "rotary" (turns queries and keys), "bias" (is added to the scores)."""

    PLOT_NOTE: ClassVar[str] = ""
    """What is to be said of its vectors beside a picture of them."""

    def max_positions(self, context: int) -> int | None:
        """How many positions there are, where no token may stand past the last one; context: `train.context`."""
        return None

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        """The module for a stack of this width, whose texts are `context` tokens long in training."""
        raise NotImplementedError
