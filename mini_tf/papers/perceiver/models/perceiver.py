"""Perceiver IO: a fixed number of latent vectors attend to the tokens, then to each other; output queries to them.

    encoder     latents attend to the embedded tokens: cross-attention + feed-forward
    processor   self-attention + feed-forward of the latents, `n_layers` per block; cost independent of the length
    decoder     one query per output attends to the latents: cross-attention + feed-forward

Time and memory are linear in the number of tokens. There is no self-attention among tokens nor among outputs, so any
subset of the outputs can be decoded. All documents of a row would share its latents, so a row holds one.
Source: Jaegle et al. 2021, arXiv:2107.14795, section 3.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.mixer import ForwardOutput, MixerSettings, sum_penalties
from mini_tf.nn.model import Model, ModelSettings, build_embedding
from mini_tf.nn.model_stack import ModelStack, SequenceKind
from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings
from mini_tf.nn.stack import AttentionLayer, CrossAttentionSpec, Stack, StackSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_cache import SourceMemory
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.nn.weights import init_weights
from mini_tf.recipe.kind_settings import Direction, PositionLimit
from mini_tf.recipe.kind_settings import ModelSettings as BaseSettings
from mini_tf.recipe.kinds import KindOf, Rule, Rules, Section, default_kind


class DecoderSettings(Section):
    """Settings of the decoder, of width d_model, that differ from those of the latents; null: the same."""

    n_heads: int | None = Field(None, ge=1, le=1024)
    """Attention heads."""
    d_k: int | None = Field(None, ge=1, le=65536)
    """Width of a query or key per head."""
    d_v: int | None = Field(None, ge=1, le=65536)
    """Width of a value per head."""
    d_ff: int | None = Field(None, ge=0, le=1048576)
    """Width of the feed-forward layer; default: that of the latents, or 4 d_model if the widths differ."""


class Settings(ModelSettings):
    DIRECTIONS = frozenset({"bidirectional"})
    PACKS = False
    OBJECTIVE = "masked"

    n_latents: int = Field(64, ge=1, le=2**20)
    """Number of latent vectors."""
    d_latent: int | None = Field(None, ge=1, le=65536)
    """Width of the latent vectors; default d_model, the width of inputs and outputs."""
    n_blocks: int = Field(1, ge=1, le=1024)
    """Blocks of n_layers layers."""
    share_blocks: bool = True
    """All blocks have the same weights."""
    query: Literal["position", "input", "task"] = "position"
    """Output queries: a vector per position, the embedded token, or one learned vector for the whole row."""
    query_positions: Annotated[PositionalEncodingSettings, KindOf("positions")] = Field(
        default_factory=default_kind("positions", "learned")
    )
    """Positional encoding that gives the vectors of `query: position`."""
    query_residual: bool = False
    """The output query is added to what it attends to; the paper leaves it out for text."""
    cross_attention: Annotated[MixerSettings, KindOf("attention")] = Field(
        default_factory=default_kind("attention", "softmax")
    )
    """Attention of the latents to the tokens, and of the output queries to the latents."""
    positions: Annotated[PositionalEncodingSettings, KindOf("positions")] = Field(
        default_factory=default_kind("positions", "learned")
    )
    """Positional encoding of the input, added or concatenated."""
    embed_norm: bool = True
    """Normalize the embeddings, to which the latents attend."""
    decoder: DecoderSettings = DecoderSettings()
    """Settings of the decoder; keys that are not given are those of the latents."""

    @property
    def per_token_setting(self) -> str:
        return "query: position" if self.query == "task" else ""

    @property
    def head_bias(self) -> bool:
        return self.bias or self.output_bias

    @property
    def n_passes(self) -> int:
        """Passes through the layers of the latents."""
        return self.n_blocks if self.share_blocks else 1

    @property
    def processor_stack(self) -> StackSettings:
        """The self-attention layers of the latents."""
        n_layers = self.n_layers * self.n_blocks // self.n_passes
        return self._without_positions({"d_model": self.d_latent or self.d_model, "n_layers": n_layers})

    @property
    def encoder_stack(self) -> StackSettings:
        """One layer of cross-attention from latents to tokens."""
        return self.processor_stack.model_copy(update={"n_layers": 1, "positions": self.positions})

    @property
    def decoder_stack(self) -> StackSettings:
        """One layer of cross-attention from output queries to latents; positions: those of the queries, if any."""
        settings = {
            name: value for name in DecoderSettings.model_fields if (value := getattr(self.decoder, name)) is not None
        }
        if self.d_latent not in (None, self.d_model):
            settings.setdefault("d_ff", None)
        stack = self._without_positions({"n_layers": 1} | settings)
        return stack.model_copy(update={"positions": self.query_positions}) if self.query == "position" else stack

    def _without_positions(self, settings: dict[str, Any]) -> StackSettings:
        return self.model_copy(update=settings | {"positions": default_kind("positions", "none")()})

    def stacks(self) -> Mapping[str, StackSettings]:
        return {"decoder": self.decoder_stack, "processor": self.processor_stack, "encoder": self.encoder_stack}

    def rules(self) -> Rules:
        yield from BaseSettings.rules(self)
        yield from self.direction_rules(self.attention, "bidirectional")
        cross, width = self.cross_attention, self.d_latent or self.d_model
        for key, encoding, others in (
            ("positions", self.positions, " or none"),
            ("query_positions", self.query_positions, ""),
        ):
            if encoding.APPLIES_TO - {"embed"} or not (others or encoding.APPLIES_TO):
                message = (
                    f"{encoding.kind} gives no vectors of positions, and a perceiver has no self-attention of tokens"
                )
                yield key, f"{message}; use learned, fourier, sinusoidal{others}"
        for mixer in dict.fromkeys(mixer for mixer in self.attention if "unordered" not in mixer.supports):
            yield "attention", f"latents have no order, on which {mixer.kind} attention depends; use softmax"
        for rule in (Rule(*rule) for rule in StackSettings.rules(self.processor_stack)):
            if self.d_latent is None:
                yield rule._replace(depends=("d_latent", *rule.depends))
            else:  # the width of this stack is another key
                depends = tuple("d_latent" if key == "d_model" else key for key in rule.depends)
                yield rule._replace(message=rule.message.replace("d_model", "d_latent"), depends=depends)
        if width != self.d_model or self.decoder != DecoderSettings():  # else its faults are those of the latents
            for rule in (Rule(*rule) for rule in StackSettings.rules(self.decoder_stack)):
                key = f"decoder.{rule.key}" if rule.key in DecoderSettings.model_fields else "decoder"
                if rule.key != "positions":  # checked above
                    yield rule._replace(key=key, depends=(rule.key, *rule.depends))
        if "cross" not in cross.supports:
            yield "cross_attention", f"{cross.kind} attention does not support cross-attention; use softmax"
        elif "unordered" not in cross.supports:
            yield (
                "cross_attention",
                f"latents have no order, in which {cross.kind} attention needs its queries; use softmax",
            )
        for rule in (Rule(*rule) for rule in cross.rules_with(self.attention_dims(width))):
            yield rule._replace(key="cross_attention", depends=(*rule.depends, "d_latent"))

    def all_mixers(self) -> Sequence[MixerSettings]:
        return [*self.mixers(), self.cross_attention]

    def describe_attention(self, boundary: str, direction: Direction) -> str:
        return (
            f"{self.n_latents} latent vectors attend to all tokens, in {boundary}; outputs attend to the latent vectors"
        )

    def compare_with(self, other: BaseSettings) -> Iterator[tuple[str, Any, Any]]:
        """Output queries may differ: a task has a query of its own."""
        yield from (entry for entry in super().compare_with(other) if entry[0] != "query")

    def attention_layers(self) -> Sequence[AttentionLayer]:
        processor, n, cross = self.processor_stack, self.n_latents, self.cross_attention
        queries = 1 if self.query == "task" else None
        return [
            AttentionLayer("encoder.cross", cross, self.encoder_stack, n, None, self.d_model),
            *processor.attention_layers_of(False, "latent.self", n),
            AttentionLayer("decoder.cross", cross, self.decoder_stack, queries, n, processor.d_model),
        ]

    def position_limits(self, context: int) -> Sequence[PositionLimit]:
        length = self.query_positions.max_positions(context) if self.query == "position" else None
        of_queries = [] if length is None else [PositionLimit("query_positions", self.query_positions.kind, length)]
        return [*super().position_limits(context), *of_queries]

    def build(self, vocabulary_size: int, context: int, source_vocabulary_size: int | None = None) -> "Perceiver":
        return Perceiver(self, vocabulary_size, context)


class Perceiver(Model):
    """queries: an encoding of the positions, or one vector; None if the embedded tokens are the queries."""

    def __init__(self, settings: Settings, vocabulary_size: int, context: int) -> None:
        super().__init__()
        self.settings, self.context, self.d_model, self.n_types = settings, context, settings.d_model, settings.n_types
        self.query_residual = settings.query_residual
        tokens = nn.Embedding(vocabulary_size, settings.d_embedding or settings.d_model)
        self.embedding = build_embedding(settings, settings, tokens, context)
        processor, cross = settings.processor_stack, settings.cross_attention
        self.latents = nn.Parameter(torch.empty(settings.n_latents, processor.d_model).normal_(0.0, settings.init_std))
        to_tokens = CrossAttentionSpec(cross, settings.d_model)
        self.encoder = Stack(settings.encoder_stack, False, None, to_tokens, has_self_attn=False, final_norm=False)
        self.processor = Stack(processor, False, None, n_passes=settings.n_passes)
        to_latents = CrossAttentionSpec(cross, processor.d_model, residual=settings.query_residual)
        self.decoder = Stack(settings.decoder_stack, False, None, to_latents, has_self_attn=False, final_norm=False)
        self.queries: PositionalEncoding | nn.Parameter | None = None
        if settings.query == "position":
            self.queries = settings.query_positions.build(
                settings.d_model, settings.n_heads, settings.head_dim, context
            )
        elif settings.query == "task":
            self.queries = nn.Parameter(torch.empty(1, settings.d_model).normal_(0.0, settings.init_std))
        self.head = head = settings.build_head(tokens)
        untied = None if settings.tied else head.linear
        init_weights(self, self._residual_outputs(), untied, settings.init_std, settings.init, settings.n_passes)

    def _residual_outputs(self) -> list[nn.Linear]:
        """Without that of the decoder's attention if no query is added to it: as zero it would pass nothing on."""
        decoder = self.decoder.residual_outputs[not self.query_residual :]
        return [*self.encoder.residual_outputs, *self.processor.residual_outputs, *decoder]

    def stacks(self) -> Sequence[ModelStack]:
        queries, rows = None if self.queries is None else "queries", self._output_rows
        n = self.processor.n_calls
        return [
            ModelStack("decoder", self.decoder, queries, rows, "latent", cross_attn="decoder.cross"),
            ModelStack("processor", self.processor, None, "latent", attention="latent.self", n_above=1),
            ModelStack(
                "encoder",
                self.encoder,
                "latents",
                "latent",
                "input",
                "embedding",
                "encoder.self",
                "encoder.cross",
                n_above=1 + n,
            ),
        ]

    @property
    def _output_rows(self) -> SequenceKind:
        return "output" if isinstance(self.queries, Tensor) else "input"

    def max_length(self, rows: SequenceKind = "input") -> int | None:
        limits = [super().max_length(rows), getattr(self.queries, "max_positions", None)]
        return min((limit for limit in limits if limit is not None), default=None)

    def forward(
        self,
        inputs: Tokens,
        source: Tokens | SourceMemory | None = None,
        at: Tensor | None = None,
        state: State | None = None,
    ) -> ForwardOutput:
        if source is not None or state is not None:
            raise ValueError("this model takes no source, and has no state")
        rows, length = inputs.ids.shape
        positions = inputs.token_positions or TokenPositions(length)
        x, latents = self.embedding(inputs, positions), TokenPositions(len(self.latents))
        encoded = self.encoder(self.latents.repeat(rows, 1, 1), latents, self.encoder.recall(x, positions))
        processed = self.processor(encoded.y, latents)
        chosen = None if at is None or self._output_rows == "output" else RowIndex.of(at, rows, length)
        queries = self._queries(x, positions, chosen)
        decoded = self.decoder(queries, TokenPositions(queries.shape[1]), self.decoder.recall(processed.y, latents))
        y = decoded.y if chosen is None else chosen.flat(decoded.y)
        if self._output_rows == "output":  # all tokens of a row have its one output
            y = y.expand(-1, length, -1) if at is None else y[at // length, 0]
        return ForwardOutput(y, sum_penalties(encoded.penalty, processed.penalty, decoded.penalty), None)

    def _queries(
        self, x: Float[Tensor, "B L D"], positions: TokenPositions, chosen: "RowIndex | None"
    ) -> Float[Tensor, "B T D"]:
        """The queries of all tokens (T = L), of those chosen, or the one of the row."""
        if self.queries is None:
            return x if chosen is None else chosen.select(x)
        if isinstance(self.queries, Tensor):
            return self.queries.repeat(x.shape[0], 1, 1)
        n = x.shape[1] if chosen is None else chosen.positions.shape[1]
        if chosen is not None:
            positions = TokenPositions(
                n, positions=positions.all_positions(x.device).expand(x.shape[0], -1).gather(1, chosen.positions)
            )
        return self.queries.embed(x.new_zeros(x.shape[0], n, x.shape[2]), positions)


class RowIndex(NamedTuple):
    """Tokens of a batch (B, L) chosen by T flat indices, as (B, n) of each row, n the most of any row.

    positions (B, n): within the row, 0 where a row has fewer; places (T,): of each token in (B, n), flat.
    """

    positions: Int[Tensor, "B n"]
    places: Int[Tensor, " T"]

    @classmethod
    def of(cls, at: Int[Tensor, " T"], rows: int, length: int) -> "RowIndex":
        row = at // length
        counts = row.new_zeros(rows).scatter_add(0, row, torch.ones_like(row))  # bincount waits for a GPU
        order = row.argsort(stable=True)
        within = torch.empty_like(at)
        within[order] = torch.arange(len(at), device=at.device) - (counts.cumsum(0) - counts)[row[order]]
        # The number would end a compiled graph, and the host wait for a GPU: both decode all tokens of a row instead.
        n = length if torch.compiler.is_compiling() or at.device.type != "cpu" else max(1, int(counts.max()))
        place = row * n + within
        index = at.new_zeros(rows * n)
        index[place] = at % length
        return cls(index.view(rows, n), place)

    def select(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B n D"]:
        return x.gather(1, self.positions[..., None].expand(-1, -1, x.shape[2]))

    def flat(self, x: Float[Tensor, "B n D"]) -> Float[Tensor, "T D"]:
        return x.flatten(0, 1)[self.places]
