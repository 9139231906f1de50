"""The contract of every mixer: what lets a token read other tokens, at the level of the layer, not the kernel.

A file of `mini_tf/attention/` holds the Settings of one mixer and the module they build. Self or cross is fixed when it
is built. `explicit` and `join` spell out what `forward` computes fused, for inspection and for the one test of all mixers.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from mini_tf.nn.places import Visibility
from mini_tf.nn.position import Position
from mini_tf.nn.state import State
from mini_tf.recipe.kinds import Kind


@dataclass(frozen=True)
class Width:
    """Sizes of one mixer. d_memory is the width of what is read (= d_model in self-attention)."""

    d_model: int
    d_memory: int
    n_heads: int
    n_kv_heads: int
    d_k: int
    d_v: int


@dataclass(frozen=True)
class Place:
    """Where in its stack a mixer stands, and what the stack gives to all of its mixers."""

    layer: int
    n_layers: int
    side: Literal["self", "cross"] = "self"
    position: Position | None = None
    bias: bool = False


class Mixed(NamedTuple):
    """y (B, L, D); penalty: None or a sum over visible own tokens, divided by counts["tokens"]; the state that follows."""

    y: Tensor
    penalty: Tensor | None
    state: State | None


class Explicit(NamedTuple):
    """weights (B, H, L, lead + M): what multiplies values, exactly 0 where nothing may be seen; the first `lead` columns
    belong to no token. values (B, H, lead + M, V)."""

    weights: Tensor
    values: Tensor
    lead: int = 0


class MixerSettings(Kind):
    """What a mixer can do, compared with what a recipe asks before anything is built."""

    READS: ClassVar[frozenset[str]] = frozenset({"left", "both"})
    """Directions: only what stands before (a decoder), or both sides (an encoder)."""
    READS_MEMORY: ClassVar[bool] = True
    """May stand in cross-attention."""
    READS_OTHER_WIDTHS: ClassVar[bool] = True
    """What it reads there may be of another width than what reads it."""
    STREAMS: ClassVar[bool] = False
    """Its state stays bounded, so it can be carried from batch to batch."""
    PACKS: ClassVar[bool] = True
    """Keeps documents that share a row apart."""
    POSITIONS: ClassVar[frozenset[str]] = frozenset()
    """Places where positions may attach: "rotary", "bias"."""

    def build(self, width: Width, place: Place) -> "Mixer":
        raise NotImplementedError


class Mixer(nn.Module):
    """Lets own tokens read a memory. Subclasses write start, forward, explicit and join."""

    def start(self, batch: int) -> State:
        """The empty state: give it to begin remembering."""
        raise NotImplementedError

    def recall(self, memory: Float[Tensor, "B M d_memory"]) -> State:
        """Cross only: keys and values of a source, made once however many tokens will read them; tensors, batch first."""
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "B L D"], memory: Any, visibility: Visibility, state: State | None = None) -> Mixed:
        """Mix every own token with what it may see of `memory`: x itself, a source, or what `recall` made of it."""
        raise NotImplementedError

    def explicit(self, x: Float[Tensor, "B L D"], memory: Any, visibility: Visibility) -> Explicit:
        """The same reading with its weights written out; in eval."""
        raise NotImplementedError

    def join(self, read: Float[Tensor, "B H L V"], x: Float[Tensor, "B L D"]) -> Float[Tensor, "B L D"]:
        """All that follows the reading."""
        raise NotImplementedError

    def view(self, visibility: Visibility) -> Visibility:
        """The part of what may be seen that this mixer looks at."""
        return visibility

    def writers(self) -> list[nn.Linear]:
        """The matrices that write into the residual stream: they start small, or at zero."""
        return []

    def trim(self, state: State) -> State:
        """Drop what can no longer matter; never changes a result. Outside `forward`, since sizes may depend on data."""
        return state

    def refresh(self, seed: int, step: int) -> None:
        """Called once before each optimizer step."""
