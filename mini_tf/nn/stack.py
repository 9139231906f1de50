"""Layers on top of each other, and the settings that a stack is made of."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.block import Block, CrossInput, ResidualStep
from mini_tf.nn.layers.feed_forward import Activation, FeedForward
from mini_tf.nn.layers.norm import NormKind, build_norm
from mini_tf.nn.mixer import AttentionDims, ForwardOutput, LayerSpec, MixerSettings
from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings
from mini_tf.nn.state import State, batch_size, reorder
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.nn.weights.init import Init
from mini_tf.recipe.kinds import Kind, KindOf, OneOrMore, Rule, Rules, default_kind, kinds_of


class StackSettings(Kind):
    """AttentionDims, depth and parts of one stack of layers."""

    d_model: int = Field(128, ge=1, le=65536)
    """Width of a token's vector."""
    n_layers: int = Field(4, ge=1, le=1024)
    """Number of layers."""
    n_heads: int = Field(4, ge=1, le=1024)
    """Heads of each mixer."""
    n_kv_heads: int | None = Field(None, ge=1)
    """Heads of keys and values, each shared by n_heads / n_kv_heads heads; default n_heads."""
    d_k: int | None = Field(None, ge=1, le=65536)
    """Width of a query or key; default d_model / n_heads."""
    d_v: int | None = Field(None, ge=1, le=65536)
    """Width of a value; default d_k."""
    d_ff: int | None = Field(None, ge=0, le=1048576)
    """Width of the feed-forward layer; default 4 d_model, 0 = no feed-forward layer."""
    activation: Activation = "gelu"
    """Of the feed-forward layer; relu2 is the square of relu, swiglu has a gate (and 1.5 times the parameters)."""
    norm: NormKind = "layer"
    """LayerNorm, or RMSNorm."""
    norm_place: Literal["pre", "post", "none"] = "pre"
    """Before each part, after each residual sum, or nowhere; pre adds one after the last layer."""
    norm_weight: bool = True
    """Norms have a learned scale."""
    norm_eps: float = Field(1e-5, gt=0, le=0.1)
    """Added to the variance."""
    residual: bool = True
    """Each part is added to what it was given; false = it replaces it."""
    bias: bool = False
    """Linear layers and LayerNorms have a shift."""
    dropout_rate: float = Field(0.0, ge=0, lt=1)
    """Share of the embeddings, and of what each part adds to the residual stream, dropped in training."""
    attention: Annotated[tuple[Annotated[MixerSettings, KindOf("attention")], ...], OneOrMore()] = Field(
        default_factory=lambda: (default_kind("attention", "softmax")(),), max_length=1024
    )
    """One mixer, or a list of them that is tiled over the layers."""
    positions: Annotated[PositionalEncodingSettings, KindOf("positions")] = Field(default_factory=default_kind("positions", "rotary"))
    """How the model knows where a token stands."""
    init: Init = "scaled"
    """What writes into the residual stream starts small (scaled by depth) or at zero."""
    init_std: float = Field(0.02, gt=0, le=10)
    """Standard deviation of fresh weights."""

    @property
    def head_dim(self) -> int:
        return self.d_k or self.d_model // self.n_heads

    def attention_dims(self, d_memory: int | None = None) -> AttentionDims:
        """Sizes of each mixer; `d_memory` is the width of a source, for cross-attention."""
        return AttentionDims(
            self.d_model,
            d_memory or self.d_model,
            self.n_heads,
            self.n_kv_heads or self.n_heads,
            self.head_dim,
            self.d_v or self.head_dim,
        )

    def rules(self) -> Rules:
        if self.d_k is None and self.d_model % self.n_heads:
            fitting = [n for n in range(1, min(self.d_model, 64) + 1) if self.d_model % n == 0]
            what = f"{self.n_heads} does not divide d_model {self.d_model}; use {_one_of(fitting)}, or give d_k"
            yield Rule("n_heads", what, ("d_model", "d_k"))
        if self.n_kv_heads and self.n_heads % self.n_kv_heads:
            fitting = [n for n in range(1, self.n_heads + 1) if self.n_heads % n == 0]
            what = f"{self.n_kv_heads} does not divide n_heads {self.n_heads}; use {_one_of(fitting)}"
            yield Rule("n_kv_heads", what, ("n_heads",))
        if "rotary" in self.positions.APPLIES_TO and self.head_dim % 2:
            what = f"{self.positions.kind} turns pairs of dimensions and needs an even d_k, not {self.head_dim}"
            yield Rule("positions", what, ("d_k", "d_model", "n_heads"))
        if self.positions.APPLIES_TO - {"embed"} - frozenset().union(*(mixer.POSITIONS for mixer in self.attention)):
            mixers = ", ".join(sorted({mixer.kind for mixer in self.attention}))
            others: dict[str, Any] = kinds_of("positions")
            words = [word for word, other in others.items() if {"embed"} >= other.APPLIES_TO]
            what = f"{self.positions.kind} does not attach to {mixers} attention; use {_one_of(words)}"
            yield Rule("positions", what, ("attention",))


def _one_of(choices: Sequence[object]) -> str:
    *most, last = map(str, choices)
    return f"{', '.join(most)} or {last}" if most else last


class CrossAttentionSpec(NamedTuple):
    """What the layers of a stack read a source with: the cross mixer, and the width of the source's vectors."""

    mixer: MixerSettings
    d_memory: int


class SourceMemory(NamedTuple):
    """A source that was read: layers[i] is what the cross mixer of layer i keeps of it, positions where its tokens stand.

    layers is None for a stack without cross mixers.
    """

    layers: list[State] | None
    token_positions: TokenPositions

    def select(self, rows: Tensor) -> "SourceMemory":
        """Row i becomes what row `rows[i]` was."""
        layers = None if self.layers is None else [reorder(layer, rows) or {} for layer in self.layers]
        return SourceMemory(layers, self.token_positions.select(rows))


class Stack(nn.Module):
    """`n_layers` blocks and, where norms stand before the parts, one norm at the end.

    cross: None = no cross mixers; own: with self-attention; n_passes: how often x goes through the blocks, whose weights all passes share.
    """

    def __init__(
        self,
        settings: StackSettings,
        causal: bool,
        positional_encoding: PositionalEncoding | None,
        cross: CrossAttentionSpec | None = None,
        own: bool = True,
        n_passes: int = 1,
    ) -> None:
        super().__init__()
        self.causal, self.n_passes = causal, n_passes
        d_ff = 4 * settings.d_model if settings.d_ff is None else settings.d_ff
        post, none = settings.norm_place == "post", settings.norm_place == "none"

        def norm() -> nn.Module:
            if none:
                return nn.Identity()
            return build_norm(settings.norm, settings.d_model, settings.norm_eps, settings.bias, settings.norm_weight)

        def step(part: nn.Module) -> ResidualStep:
            return ResidualStep(part, norm(), post, settings.residual, settings.dropout_rate)

        blocks = []
        for layer in range(settings.n_layers):
            own_mixer = cross_mixer = None
            if own:
                mixer = settings.attention[layer % len(settings.attention)]
                spec = LayerSpec(layer, settings.n_layers, "self", positional_encoding, settings.bias)
                own_mixer = mixer.build(settings.attention_dims(), spec)
            if cross is not None:
                spec = LayerSpec(layer, settings.n_layers, "cross", None, settings.bias)
                cross_mixer = cross.mixer.build(settings.attention_dims(cross.d_memory), spec)
            feed_forward = FeedForward(settings.d_model, d_ff, settings.activation, settings.bias) if d_ff else None
            blocks.append(Block(own_mixer, cross_mixer, feed_forward, step))
        self.layers = nn.ModuleList(blocks)
        self.norm = norm() if settings.norm_place == "pre" else nn.Identity()

    def start(self, batch: int) -> State:
        """The empty state of every layer."""
        return {str(i): block.start(batch) for i, block in enumerate(self._calls)}

    def trim(self, state: State) -> State:
        """The state without what can no longer matter."""
        return {str(i): block.trim(part) for i, block in enumerate(self._calls) if (part := state.get(str(i))) is not None}

    @property
    def blocks(self) -> list[Block]:
        return [block for block in self.layers if isinstance(block, Block)]

    @property
    def n_calls(self) -> int:
        """How many layers x goes through, those that share their weights counted each time."""
        return len(self.layers) * self.n_passes

    @property
    def _calls(self) -> list[Block]:
        """The blocks in the order in which x goes through them."""
        return self.blocks * self.n_passes

    def recall(self, source: Tensor, token_positions: TokenPositions) -> SourceMemory:
        """What the layers' cross mixers keep of a source (B, M, d_memory), whose tokens stand at `token_positions`."""
        crossing = [block.mixers["cross"] for block in self.blocks if block.cross is not None]
        return SourceMemory([cross.recall(source, token_positions) for cross in crossing] or None, token_positions)

    def forward(
        self,
        x: Tensor,
        token_positions: TokenPositions,
        memory: SourceMemory | None = None,
        at: Tensor | None = None,
        state: State | None = None,
    ) -> ForwardOutput:
        """(B, L, D) -> (B, L, D); with `at`, flat indices into (B, L), only those tokens come out: (T, D).

        memory: what cross mixers read. Of a memory of fewer rows, each serves as many neighbouring rows of x: beams of one source.
        """
        visibility = Visibility(self.causal, token_positions, token_positions)
        layers = None if memory is None else memory.layers
        cross = None
        if memory is not None and layers:
            rows = batch_size(layers[0])
            cross = Visibility(
                False,
                token_positions if rows == len(x) else token_positions.merge_rows(len(x), len(x) // rows, x.device),
                memory.token_positions,
            )
        penalty, kept = None, None if state is None else State()
        calls = self._calls
        for i, block in enumerate(calls):
            before = None if state is None else state.get(str(i), {})
            read = None if layers is None or cross is None else CrossInput(layers[i % len(layers)], cross)
            mixed: ForwardOutput = block(x, visibility, read, before, at if i + 1 == len(calls) else None)
            if mixed.penalty is not None:
                penalty = mixed.penalty if penalty is None else penalty + mixed.penalty
            if kept is not None and mixed.state is not None:
                kept[str(i)] = mixed.state
            x = mixed.y
        return ForwardOutput(self.norm(x), penalty, kept)

    @property
    def residual_outputs(self) -> list[nn.Linear]:
        """The matrices that write into the residual stream."""
        found = []
        for block in self.blocks:
            found += [writer for mixer in block.mixers.values() for writer in mixer.residual_outputs()]
            if block.feed_forward is not None and isinstance(block.feed_forward.part, FeedForward):
                found.append(block.feed_forward.part.down)
        return found
