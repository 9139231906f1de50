"""The contract of every mixer: how tokens attend to tokens, at the level of the layer, not the kernel.

A file of `mini_tf/attention/` holds the Settings of one mixer and the module they build. Self or cross is fixed when it
is built. `explicit` and `join` spell out what `forward` computes fused, for inspection and for the one test of all mixers.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.recipe.kind_settings import Direction
from mini_tf.recipe.kinds import Kind


@dataclass(frozen=True)
class AttentionDims:
    """Sizes of one mixer. d_memory is the width of what is read (= d_model in self-attention)."""

    d_model: int
    d_memory: int
    n_heads: int
    n_kv_heads: int
    d_k: int
    d_v: int


@dataclass(frozen=True)
class LayerSpec:
    """Where in its stack a mixer stands, and what the stack gives to all of its mixers."""

    layer: int
    n_layers: int
    attention: Literal["self", "cross"] = "self"
    positional_encoding: PositionalEncoding | None = None
    bias: bool = False


class ForwardOutput(NamedTuple):
    """y (B, L, D); penalty: None or a sum over visible own tokens, divided by counts["tokens"]; the state that follows."""

    y: Tensor
    penalty: Tensor | None
    state: State | None


class ExplicitAttention(NamedTuple):
    """weights (B, H, L, lead + M): what multiplies values, exactly 0 where nothing may be seen; the first `lead` columns
    belong to no token. values (B, H, lead + M, V)."""

    weights: Tensor
    values: Tensor
    lead: int = 0


class MixerSettings(Kind):
    """What a mixer can do, compared with what a recipe asks before anything is built."""

    PACKAGE = "attention"
    DIRECTIONS: ClassVar[frozenset[Direction]] = frozenset({"causal", "bidirectional", "prefix"})
    """Directions of its self-attention; none: it is a cross mixer only. `prefix`: it attends to what has no higher order than the
    query (`TokenPositions.orders`)."""
    CROSS: ClassVar[bool] = True
    """May stand in cross-attention."""
    CROSS_WIDTHS: ClassVar[bool] = True
    """There, keys and values may come from vectors of another width than queries do."""
    STREAMS: ClassVar[bool] = False
    """Its state stays bounded, so it can be carried from batch to batch."""
    PACKS: ClassVar[bool] = True
    """Keeps documents that share a row apart."""
    ATTENDS_SELF: ClassVar[bool] = True
    """A token attends to itself too."""
    POSITIONS: ClassVar[frozenset[str]] = frozenset()
    """Where positions may attach: "rotary" (to queries and keys), "bias" (to scores)."""

    @property
    def restriction(self) -> str:
        """What it leaves out of what may be seen, in words; empty where it leaves out nothing."""
        return "" if self.ATTENDS_SELF else "all but itself"

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Mixer":
        raise NotImplementedError


class SoftmaxAttention(NamedTuple):
    """What the fast decoder needs of multi-head self-attention by softmax(q k^T * scale + bias) v.

    qkv: the joint map, whose output is split into `sizes` of queries, keys and values; out: the map behind the heads. qk_norm: queries
    and keys have unit root mean square. window: farthest key seen, None = all.
    """

    dims: AttentionDims
    qkv: nn.Linear
    sizes: tuple[int, int, int]
    out: nn.Linear
    scale: float
    qk_norm: bool
    window: int | None


class Mixer(nn.Module):
    """Own tokens attend to a memory. Subclasses write start, forward, explicit and join, and recall where they cross."""

    def start(self, batch: int) -> State:
        """The empty state: give it to begin remembering. A cross mixer has one too; {} where it remembers nothing."""
        raise NotImplementedError

    def recall(self, memory: Float[Tensor, "B M d_memory"], token_positions: TokenPositions) -> State:
        """Cross only: what it keeps of a source (keys and values, or their sums), made once however many queries follow.

        Tensors, batch first. What `explicit` needs and forward does not, it keeps too. Content of padding must not reach it.
        """
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "B L D"], memory: Any, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        """Mix every own token with what it may see of `memory`: x itself, a source, or what `recall` made of it."""
        raise NotImplementedError

    def explicit(self, x: Float[Tensor, "B L D"], memory: Any, visibility: Visibility) -> ExplicitAttention:
        """The same attention with its weights written out; in eval."""
        raise NotImplementedError

    def join(
        self, read: Float[Tensor, "B H L V"], x: Float[Tensor, "B L D"], visibility: Visibility, state: State | None = None
    ) -> ForwardOutput:
        """All that follows the weighted sums of values: the output map, or a norm, a recurrence, ...

        A recurrence goes on from its part of `state`, which comes out changed, and starts anew where a document begins.
        """
        raise NotImplementedError

    def restrict(self, visibility: Visibility) -> Visibility:
        """The part of what may be seen that this mixer attends to."""
        return visibility

    def fast_decoding(self) -> SoftmaxAttention | None:
        """How the fast decoder may compute one more token in this mixer's place; None: it may not.

        The state must then hold keys `k` (B, G, n, K), turned by their positions, and values `v` (B, G, n, V), and nothing else.
        """
        return None

    def residual_outputs(self) -> list[nn.Linear]:
        """The matrices that write into the residual stream: they start small, or at zero."""
        return []

    def trim(self, state: State) -> State:
        """Drop what can no longer matter; never changes a result. Outside `forward`, since sizes may depend on data."""
        return state

    def refresh(self, seed: int, step: int) -> None:
        """Called once before each optimizer step."""
