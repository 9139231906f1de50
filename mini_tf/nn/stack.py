"""A stack of layers, and its settings."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.block import Block, CrossInput, ResidualStep
from mini_tf.nn.layers.feed_forward import Activation, FeedForward
from mini_tf.nn.layers.kernels import ResidualLinear
from mini_tf.nn.layers.norm import NormKind, build_norm
from mini_tf.nn.mixer import AttentionDims, ForwardOutput, LayerSpec, MixerSettings, sum_penalties
from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_cache import SourceMemory
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.nn.weights import Init
from mini_tf.recipe.kinds import Kind, KindOf, OneOrMore, Rule, Rules, default_kind, kinds_of


class StackSettings(Kind):
    """Sizes and parts of one stack of layers."""

    TRAINING_KEYS = frozenset({"dropout_rate", "init", "init_std"})

    d_model: int = Field(128, ge=1, le=65536)
    """Width of the hidden states."""
    n_layers: int = Field(4, ge=1, le=1024)
    """Number of layers."""
    n_heads: int = Field(4, ge=1, le=1024)
    """Attention heads per layer."""
    n_kv_heads: int | None = Field(None, ge=1)
    """Key-value heads, each shared by n_heads / n_kv_heads query heads; default n_heads."""
    d_k: int | None = Field(None, ge=1, le=65536)
    """Width of a query or key per head; default d_model / n_heads."""
    d_v: int | None = Field(None, ge=1, le=65536)
    """Width of a value per head; default d_k."""
    d_ff: int | None = Field(None, ge=0, le=1048576)
    """Width of the feed-forward layer; default 4 d_model, 0 = no feed-forward layer."""
    activation: Activation = "gelu"
    """Activation of the feed-forward layer; relu2: squared ReLU; swiglu, geglu: gated (1.5 times the parameters)."""
    norm: NormKind = "layer"
    """LayerNorm or RMSNorm."""
    norm_place: Literal["pre", "post", "none"] = "pre"
    """Pre-norm (with a final norm after the last layer), post-norm, or no norms."""
    first_norm: bool = True
    """With pre-norm: the first attention has a norm before it, too; false as in ModernBERT, after an embedding norm."""
    norm_weight: bool = True
    """Norms have a learned scale."""
    norm_eps: float = Field(1e-5, gt=0, le=0.1)
    """Epsilon that norms add to the variance."""
    residual: bool = True
    """Residual connections; false: the output of each part replaces its input."""
    parallel: bool = False
    """The feed-forward layer has the same input as the attention, and both outputs are added, as in GPT-J."""
    bias: bool = False
    """Linear layers and LayerNorms have a bias."""
    dropout_rate: float = Field(0.0, ge=0, lt=1)
    """Dropout probability of the embeddings and of the output of each part before the residual sum."""
    attention: Annotated[tuple[Annotated[MixerSettings, KindOf("attention")], ...], OneOrMore()] = Field(
        default_factory=lambda: (default_kind("attention", "softmax")(),), max_length=1024
    )
    """One mixer, or a list of mixers that is repeated over the layers."""
    positions: Annotated[PositionalEncodingSettings, KindOf("positions")] = Field(
        default_factory=default_kind("positions", "rotary")
    )
    """Positional encoding."""
    init: Init = "scaled"
    """Initialization of output projections to the residual stream: scaled down by depth, or zero."""
    init_std: float = Field(0.02, gt=0, le=10)
    """Standard deviation of initial weights."""

    @property
    def head_dim(self) -> int:
        return self.d_k or self.d_model // self.n_heads

    @property
    def hidden_dim(self) -> int:
        """Width of the feed-forward layer, 0 = none."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    def attention_dims(self, d_memory: int | None = None) -> AttentionDims:
        """Sizes of each mixer; d_memory: width of the source's hidden states, for cross-attention."""
        return AttentionDims(
            self.d_model,
            d_memory or self.d_model,
            self.n_heads,
            self.n_kv_heads or self.n_heads,
            self.head_dim,
            self.d_v or self.head_dim,
        )

    def attention_layers_of(self, causal: bool, name: str = "", length: int | None = None) -> "list[AttentionLayer]":
        """Each different self-attention layer, on rows of `length` (None: any) hidden states."""
        mixers = [*dict.fromkeys(self.attention)]
        kinds = [mixer.kind for mixer in mixers]

        def named(mixer: MixerSettings) -> str:
            layer = f"layer {self.attention.index(mixer)}" if kinds.count(mixer.kind) > 1 else ""
            return ", ".join(filter(None, (name, mixer.kind if len(mixers) > 1 else "", layer)))

        return [AttentionLayer(named(mixer), mixer, self, length, length, causal=causal) for mixer in mixers]

    def rules(self) -> Rules:
        needs_pairs, divides = "rotary" in self.positions.APPLIES_TO, self.d_model % self.n_heads == 0
        width = 2 if needs_pairs and self.d_model % 2 == 0 else 1
        fitting = [n for n in range(1, min(self.d_model, 64) + 1) if self.d_model % (width * n) == 0]
        if self.d_k is None and not divides:
            message = f"{self.n_heads} does not divide d_model {self.d_model}; use {_one_of(fitting)}, or give d_k"
            yield Rule("n_heads", message, ("d_model", "d_k"))
        if self.n_kv_heads and self.n_heads % self.n_kv_heads:
            fitting = [n for n in range(1, self.n_heads + 1) if self.n_heads % n == 0]
            message = f"{self.n_kv_heads} does not divide n_heads {self.n_heads}; use {_one_of(fitting)}"
            yield Rule("n_kv_heads", message, ("n_heads",))
        if needs_pairs and self.head_dim % 2 and (divides or self.d_k is not None):
            message = f"{self.positions.kind} rotates pairs of dimensions and needs an even d_k, not {self.head_dim}"
            message += f"; use n_heads {_one_of(fitting)}" if self.d_k is None and width == 2 else ""
            yield Rule("positions", message, ("d_k", "d_model", "n_heads"))
        if self.parallel and (self.norm_place == "post" or not self.residual):
            message = "adds both outputs to the input; use norm_place: pre and residual: true"
            yield Rule("parallel", message, ("norm_place", "residual"))
        for mixer in dict.fromkeys(self.attention):
            yield from mixer.rules_with(self.attention_dims())
        supported = frozenset({"embed"}).union(*(mixer.supports for mixer in self.attention))
        if self.positions.APPLIES_TO - supported:
            mixers = ", ".join(sorted({mixer.kind for mixer in self.attention}))
            others: dict[str, Any] = kinds_of("positions")
            words = [word for word, other in others.items() if supported >= other.APPLIES_TO]
            message = f"{self.positions.kind} is not supported by {mixers} attention; use {_one_of(words)}"
            yield Rule("positions", message, ("attention",))


def _one_of(choices: Sequence[object]) -> str:
    *most, last = map(str, choices)
    return f"{', '.join(most)} or {last}" if most else last


class AttentionLayer(NamedTuple):
    """An attention sublayer of a stack with its projections, as a model applies it to a row of tokens.

    name: its part of the model, empty if there is only one; queries, keys: their numbers, None: one per token of the
    row; d_memory: width of the source of cross-attention, None: self-attention.
    """

    name: str
    mixer: MixerSettings
    stack: StackSettings
    queries: int | None = None
    keys: int | None = None
    d_memory: int | None = None
    causal: bool = False


class CrossAttentionSpec(NamedTuple):
    """Cross-attention of a stack: the settings of the mixer, and the width of the source's hidden states.

    residual: the queries are added to the output, if the stack has residual connections.
    """

    mixer: MixerSettings
    d_memory: int
    residual: bool = True


class Stack(nn.Module):
    """`n_layers` blocks and, with pre-norm, a final norm.

    cross_spec: cross-attention, None = none; has_self_attn: blocks have self-attention; n_passes: number of passes
    through the blocks (shared weights); final_norm: with pre-norm.
    """

    def __init__(
        self,
        settings: StackSettings,
        causal: bool,
        positional_encoding: PositionalEncoding | None,
        cross_spec: CrossAttentionSpec | None = None,
        has_self_attn: bool = True,
        n_passes: int = 1,
        final_norm: bool = True,
    ) -> None:
        super().__init__()
        self.causal, self.n_passes = causal, n_passes
        d_ff = settings.hidden_dim
        post, none = settings.norm_place == "post", settings.norm_place == "none"

        def norm() -> nn.Module:
            if none:
                return nn.Identity()
            return build_norm(settings.norm, settings.d_model, settings.norm_eps, settings.bias, settings.norm_weight)

        def step(part: nn.Module) -> ResidualStep:
            residual = settings.residual and (cross_spec is None or cross_spec.residual or part is not cross_attn)
            without_norm = part is first_mixer and not post and not settings.first_norm
            return ResidualStep(part, nn.Identity() if without_norm else norm(), post, residual, settings.dropout_rate)

        blocks: list[Block] = []
        first_mixer: nn.Module | None = None
        for layer in range(settings.n_layers):
            self_attn, cross_attn = None, None
            if has_self_attn:
                mixer = settings.attention[layer % len(settings.attention)]
                encoding = None if positional_encoding is None else positional_encoding.of_layer(layer)
                spec = LayerSpec(layer, settings.n_layers, "self", encoding, settings.bias)
                self_attn = mixer.build(settings.attention_dims(), spec)
                first_mixer = first_mixer or self_attn
            if cross_spec is not None:
                spec = LayerSpec(layer, settings.n_layers, "cross", None, settings.bias)
                cross_attn = cross_spec.mixer.build(settings.attention_dims(cross_spec.d_memory), spec)
            feed_forward = FeedForward(settings.d_model, d_ff, settings.activation, settings.bias) if d_ff else None
            blocks.append(Block(self_attn, cross_attn, feed_forward, step, settings.parallel))
        self.layers = nn.ModuleList(blocks)
        self.norm = norm() if settings.norm_place == "pre" and final_norm else nn.Identity()

    def start(self, batch: int) -> State:
        """The empty state of every layer."""
        return {i: block.start(batch) for i, block in self._numbered_calls}

    def trim(self, state: State) -> State:
        """Drop entries of the state that later tokens cannot attend to."""
        return {i: block.trim(state[i]) for i, block in self._numbered_calls if i in state}

    def carry(self, state: State) -> State:
        """What is kept of the state for the next row of a stream."""
        return {i: block.carry(state[i]) for i, block in self._numbered_calls if i in state}

    @property
    def blocks(self) -> list[Block]:
        return [block for block in self.layers if isinstance(block, Block)]

    @property
    def n_calls(self) -> int:
        """Number of block calls in a forward pass: layers times passes."""
        return len(self.layers) * self.n_passes

    @property
    def _numbered_calls(self) -> list[tuple[str, Block]]:
        """The blocks in the order of their calls, with the number of each, a key of the state."""
        return [(str(i), block) for i, block in enumerate(self.blocks * self.n_passes)]

    def recall(self, source: Tensor, token_positions: TokenPositions) -> SourceMemory:
        """`Mixer.recall` of every cross-attention for a source (B, M, d_memory), such as its keys and values."""
        mixers = [block.mixers["cross_attn"] for block in self.blocks if block.cross_attn is not None]
        return SourceMemory([mixer.recall(source, token_positions) for mixer in mixers] or None, token_positions)

    def forward(
        self,
        x: Tensor,
        token_positions: TokenPositions,
        memory: SourceMemory | None = None,
        at: Tensor | None = None,
        state: State | None = None,
    ) -> ForwardOutput:
        """(B, L, D) -> (B, L, D), or (T, D) for the flat indices `at` (T,) into (B, L).

        memory: the source for cross-attention. If it has fewer rows than x, each serves a group of neighboring rows
        (beams).
        """
        visibility = Visibility(self.causal, token_positions, token_positions)
        sources: list[CrossInput] = []
        if memory is not None and memory.layers:
            mask = memory.visibility(token_positions, x.shape[0], x.device)
            sources = [CrossInput(recalled, mask) for recalled in memory.layers]
        penalty = None
        new_state: State | None = None if state is None else {}
        calls = self.blocks * self.n_passes
        for i, block in enumerate(calls):
            before = None if state is None else state.get(str(i), {})
            source = sources[i % len(sources)] if sources else None
            mixed: ForwardOutput = block(x, visibility, source, before, at if i + 1 == len(calls) else None)
            x, penalty = mixed.y, sum_penalties(penalty, mixed.penalty)
            if new_state is not None and mixed.state is not None:
                new_state[str(i)] = mixed.state
        return ForwardOutput(self.norm(x), penalty, new_state)

    @property
    def residual_outputs(self) -> list[nn.Linear]:
        """The output projections to the residual stream."""
        return [part for part in self.layers.modules() if isinstance(part, ResidualLinear)]
