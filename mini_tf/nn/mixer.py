"""The contract of every mixer: the attention sublayer of a block, or another layer that mixes tokens.

A file of `mini_tf/attention/` defines the Settings of one mixer and the module that they build, for self-attention or
for cross-attention. `explicit` and `join` compute unfused what `forward` computes fused, for inspection and tests.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from mini_tf.nn.layers.copy_attention import Copies
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.state import State
from mini_tf.nn.token_cache import last_tokens
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.recipe.kind_settings import Direction
from mini_tf.recipe.kinds import Kind, Rules


@dataclass(frozen=True)
class AttentionDims:
    """Sizes of one mixer. d_memory: width of the memory (d_model in self-attention); d_k and d_v: per head."""

    d_model: int
    d_memory: int
    n_heads: int
    n_kv_heads: int
    d_k: int
    d_v: int


@dataclass(frozen=True)
class LayerSpec:
    """Index of the layer, self-attention or cross-attention, and settings shared by all mixers of a stack."""

    layer: int
    n_layers: int
    attention: Literal["self", "cross"] = "self"
    positional_encoding: PositionalEncoding | None = None
    bias: bool = False


class ForwardOutput(NamedTuple):
    """Output of a mixer, block, stack or model.

    y (B, L, D): hidden states; penalty: auxiliary loss, summed over the tokens that are no padding and divided by
    counts["tokens"] in training, or None; state: the new state, None if none was given. copies: of a model with copy
    attention, what each hidden state copies from its source; the logits depend on it.
    """

    y: Tensor
    penalty: Tensor | None
    state: State | None
    copies: Copies | None = None

    def each(self, change: Callable[[Tensor], Tensor]) -> "ForwardOutput":
        """With `change`, a selection or reshaping of the leading axes, applied to `y` and `copies`."""
        return self._replace(y=change(self.y), copies=None if self.copies is None else self.copies.each(change))


class ExplicitAttention(NamedTuple):
    """weights (B, H, L, lead + M): attention weights, exactly 0 where the mask is False; values (B, H, lead + M, V).

    The first `lead` columns belong to no token (attention sinks, global summaries). visibility: the attention mask of
    the mixer, a subset of the given one; None: the given one.
    """

    weights: Tensor
    values: Tensor
    lead: int = 0
    visibility: Visibility | None = None


Ability = Literal[
    Direction,
    "cross",
    "packing",
    "streaming",
    "rotary",
    "bias",
    "unordered",
    "excludes_self",
    "context_only",
    "nonnegative",
]
"""What a mixer may support.

- causal, bidirectional, prefix: such self-attention; none of them: cross-attention only. prefix: it uses
  `TokenPositions.orders`;
- cross: cross-attention;
- packing: the documents of a packed row are kept apart;
- streaming: the size of its state is bounded at the end of a row (`carry`), so it may be carried from batch to batch;
- rotary, bias: positional encodings of queries and keys, or of attention scores, beside those of embeddings;
- unordered: outputs depend on the order of tokens and queries only by positional encodings; latent vectors have none;
- excludes_self: a query does not attend to its own token, though its output may depend on it by the query;
- context_only: the output at a token depends on other tokens only, as CBOW needs;
- nonnegative: no attention weight is negative.
"""


class MixerSettings(Kind):
    """Settings of a mixer, which declare what it supports; a recipe that needs more is refused."""

    PACKAGE = "attention"
    SUPPORTS: ClassVar[frozenset[Ability]] = frozenset(
        {"causal", "bidirectional", "prefix", "cross", "packing", "unordered", "nonnegative"}
    )
    """What the mixer supports with any settings."""
    STREAM_KEYS: ClassVar[frozenset[str]] = frozenset()
    """Keys that have an effect only with `train.stream`."""

    @property
    def supports(self) -> frozenset[Ability]:
        """What the mixer supports with these settings."""
        return self.SUPPORTS

    @property
    def restriction(self) -> str:
        """Restriction of the attention mask, for messages; empty if there is none."""
        return ""

    @property
    def memory_bound(self) -> int | None:
        """Most tokens of earlier rows that a stream keeps; None: no tokens, but possibly a state of constant size."""
        return None

    def shared_keys(self, other: "MixerSettings") -> frozenset[str] | None:
        """Keys that must be equal to those of another mixer for its weights to be used here (`init_from`).

        None: all keys and the kind.
        """
        return None

    def rules_with(self, dims: AttentionDims) -> Rules:
        """Rules between its settings and the sizes of a stack, by the keys of the stack."""
        return ()

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Mixer":
        raise NotImplementedError


def describe_restrictions(mixers: Sequence[MixerSettings]) -> str:
    """Restrictions of the attention mask by the mixers of a stack, for messages; empty if there are none."""
    layers = [f"{mixer.kind}: {mixer.restriction or 'unrestricted'}" for mixer in mixers]
    return f" ({', then '.join(dict.fromkeys(layers))})" if any(mixer.restriction for mixer in mixers) else ""


class FastProjections(NamedTuple):
    """Multi-head self-attention, as the fast decoder needs it.

    qkv: the fused projection, whose output is split into `sizes` of queries, keys and values; out: the output
    projection. qk_norm: the weight of queries and keys that are normalized to RMS 1, (K,) or (H + G, K); None: they are
    not.
    """

    dims: AttentionDims
    qkv: nn.Linear
    sizes: tuple[int, int, int]
    out: nn.Linear
    qk_norm: Tensor | None


class SoftmaxAttention(NamedTuple):
    """softmax(q k^T * scale + bias) v. window: largest distance of a key, None = unlimited.

    persistent: keys (G, N, K) and values (G, N, V) of no token, which come first and have no bias. The state must be
    rotated keys `k` (B, G, n, K), values `v` (B, G, n, V) and their positions, nothing else.
    """

    projections: FastProjections
    scale: float
    window: int | None
    persistent: tuple[Tensor, Tensor] | None


class RecurrentAttention(NamedTuple):
    """Attention with a state of constant size in place of keys and values.

    step: (rotated queries and keys (B, H + G, K), values (B, G, V), state) -> attended (B, H, V) of one token per row,
    and the new state, which may share tensors with the old one.
    """

    projections: FastProjections
    step: Callable[[Tensor, Tensor, State], tuple[Tensor, State]]


class RecurrentUnit(NamedTuple):
    """A recurrence. step: (x (B, D), state) -> the mixer's output (B, D) of one token per row, and the new state."""

    step: Callable[[Tensor, State], tuple[Tensor, State]]


FastDecoding = SoftmaxAttention | RecurrentAttention | RecurrentUnit


class Mixer(nn.Module):
    """Base class: queries attend to a memory. Subclasses define start, forward, explicit and join; recall for "cross".

    Its projections to the residual stream are `ResidualLinear` layers. Parameters of its own, outside of its layers,
    stay whole where processes share a model, so that `trim` and `metrics` can read them outside of `forward`.
    """

    NO_GRAPH: ClassVar[str] = ""
    """Why no fixed graph of operations computes it for all lengths, as an ONNX file needs; empty if one does."""
    has_heads: bool = True
    """There are attention heads. Without them `explicit` returns weights (B, 0, L, M)."""
    memory_length: int | None = None
    """Tokens of earlier rows that `carry` keeps, of a cache of tokens (`token_cache`); None: what `trim` keeps. More
    than in training may be set for evaluation."""

    def start(self, batch: int) -> State:
        """The empty state for the first `forward`; {} if there is no state, as in most cross-attention.

        batch: rows of targets, of which several may share a source (`Visibility.rows_per_source`): beams have states
        of their own.
        """
        raise NotImplementedError

    def recall(self, memory: Float[Tensor, "B M d_memory"], token_positions: TokenPositions) -> State:
        """Cross-attention only: tensors that are computed once per source, such as keys and values.

        The batch is their first axis. Tensors that only `explicit` needs are included. Padding must not influence them.
        """
        raise NotImplementedError

    def forward(
        self, x: Float[Tensor, "B L D"], memory: Any, visibility: Visibility, state: State | None = None
    ) -> ForwardOutput:
        """memory: x itself (self-attention), the encoder output, or what `recall` returned for it."""
        raise NotImplementedError

    def explicit(self, x: Float[Tensor, "B L D"], memory: Any, visibility: Visibility) -> ExplicitAttention:
        """Attention weights and values, computed without fused kernels; in eval mode."""
        raise NotImplementedError

    def observe(self, x: Float[Tensor, "B L D"], memory: Any, visibility: Visibility) -> Mapping[str, Tensor]:
        """Tensors by name that a view of `inspect` shows, such as gates or spans, batch first; in eval mode.

        attention (B, H, L, M): of cross-attention whose weights in `explicit` depend on those of earlier queries, the
        weights that do not, whose sum is the coverage.
        """
        return {}

    def join(
        self,
        attended: Float[Tensor, "B H L V"],
        x: Float[Tensor, "B L D"],
        visibility: Visibility,
        state: State | None = None,
    ) -> ForwardOutput:
        """Everything after the weighted sum of the values: the output projection, a norm, a recurrence.

        A recurrence continues from its part of `state`, returns it updated, and restarts at document boundaries.
        """
        raise NotImplementedError

    def fast_decoding(self) -> FastDecoding | None:
        """What the fast decoder needs to compute one decoding step; None: it must call `forward`."""
        return None

    def trim(self, state: State) -> State:
        """Drop entries of the state that later tokens cannot attend to. Not in `forward`: sizes may depend on data."""
        return state

    def metrics(self, state: State | None) -> Mapping[str, tuple[Tensor, Tensor | int]]:
        """(sum, count) of what is worth recording while it is trained: of parameters, and of the state after a row."""
        return {}

    def refresh(self, seed: int, step: int) -> bool:
        """Called once before each optimizer step, to change buffers in place. True if former states became invalid."""
        return False


def sum_penalties(*penalties: Tensor | None) -> Tensor | None:
    """The sum of those that there are; None if there is none."""
    total = None
    for penalty in penalties:
        if penalty is not None:
            total = penalty if total is None else total + penalty
    return total


def carry(mixer: Mixer, state: State) -> State:
    """What is kept at the end of a row for the next row of a stream: no more than a memory's length."""
    state = mixer.trim(state)
    return state if mixer.memory_length is None else last_tokens(state, mixer.memory_length)
