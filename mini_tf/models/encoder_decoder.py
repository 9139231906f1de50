"""An encoder and a decoder: every token of the target sees the whole source, what stands before it in the target, and itself.

The decoder's cross mixers read what the encoder's last layer gives, whose keys and values are made once a source. With
sinusoidal positions, post-norm, relu and scaled, shared embeddings this is the Transformer of 2017; with learned positions,
an embedding norm and gelu BART; with t5 positions, RMSNorm and unscaled scores T5.

Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.mixer import ForwardOutput, MixerSettings
from mini_tf.nn.model import ModelSettings, ModelStack, OneStack, build_embedding, describe_restrictions
from mini_tf.nn.positional_encoding import PositionalEncodingSettings
from mini_tf.nn.stack import CrossAttentionSpec, SourceMemory, Stack, StackSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.nn.weights.init import init_weights
from mini_tf.recipe.kind_settings import Direction, PositionLimit
from mini_tf.recipe.kind_settings import ModelSettings as BaseSettings
from mini_tf.recipe.kinds import KindOf, OneOrMore, Rule, Rules, Section, default_kind


class EncoderSettings(Section):
    """What the encoder has otherwise than the decoder; null: the same."""

    d_model: int | None = Field(None, ge=1, le=65536)
    """Width of a source token's vector."""
    n_layers: int | None = Field(None, ge=1, le=1024)
    """Number of layers."""
    n_heads: int | None = Field(None, ge=1, le=1024)
    """Heads of each mixer."""
    d_ff: int | None = Field(None, ge=0, le=1048576)
    """Width of the feed-forward layer; default the decoder's, or 4 d_model where the widths differ."""
    attention: Annotated[tuple[Annotated[MixerSettings, KindOf("attention")], ...], OneOrMore()] | None = None
    """One mixer, or a list of them that is tiled over the layers."""
    positions: Annotated[PositionalEncodingSettings, KindOf("positions")] | None = None
    """How the encoder knows where a token stands."""


class Settings(ModelSettings):
    DIRECTIONS = frozenset({"causal"})
    SOURCE = True
    OBJECTIVE = "seq2seq"

    encoder: EncoderSettings = EncoderSettings()
    """The encoder's own sizes and parts; what is not given is as in the decoder."""
    cross_attention: Annotated[MixerSettings, KindOf("attention")] | None = Field(default_factory=default_kind("attention", "softmax"))
    """How the decoder reads the source; null: not at all, which shows what it is good for."""
    shared_embeddings: bool = True
    """Both sides have one table of token vectors, where they have one vocabulary and one width."""

    @property
    def source_stack(self) -> StackSettings:
        """The encoder's settings, complete."""
        given = {name: value for name in EncoderSettings.model_fields if (value := getattr(self.encoder, name)) is not None}
        if self.encoder.d_model not in (None, self.d_model):
            given.setdefault("d_ff", None)
        return self.model_copy(update=given)

    def rules(self) -> Rules:
        yield from super().rules()
        side, told = self.source_stack, set(StackSettings.rules(self))
        for rule in [*StackSettings.rules(side), *self.direction_rules(side.attention, "bidirectional")]:
            if rule not in told:  # of a key that both sides share it is told once
                yield self._of_encoder(*rule)
        cross = self.cross_attention
        if cross is not None and not cross.CROSS:
            yield "cross_attention", f"{cross.kind} attention cannot read a source; use softmax"
        elif cross is not None and not cross.CROSS_WIDTHS and side.d_model != self.d_model:
            what = f"{cross.kind} attention reads no source of another width ({side.d_model} and {self.d_model}); use softmax"
            yield Rule("cross_attention", what, ("d_model", "encoder.d_model"))
        if self.n_types:
            yield "n_types", "pairs have no segments; use 0"

    @staticmethod
    def _of_encoder(key: str, message: str, depends: Iterable[str] = ()) -> Rule:
        """A rule of a stack, as one of the encoder: what is not given there is the decoder's."""
        own = {name: f"encoder.{name}" for name in (key, *depends) if name in EncoderSettings.model_fields}
        return Rule(own.get(key, "encoder"), message, (key, *depends, *own.values()))

    def position_limits(self, context: int) -> Sequence[PositionLimit]:
        side = self.source_stack.positions
        key = "positions" if self.encoder.positions is None else "encoder.positions"
        longest = side.max_positions(context)
        return [*super().position_limits(context), *([] if longest is None else [PositionLimit(key, side.kind, longest, source=True)])]

    def stacks(self) -> Mapping[str, StackSettings]:
        return {"stack": self, "encoder": self.source_stack}

    def describe_attention(self, border: str, direction: Direction) -> str:
        source = ", and its whole source" if self.cross_attention is not None else ", and nothing of the source"
        target = f"each token of a target sees what stands before it and itself{describe_restrictions(self.attention)}{source}"
        return f"{target}; each token of a source sees both sides and itself{describe_restrictions(self.source_stack.attention)}"

    def can_init_from(self, other: BaseSettings) -> bool:
        """From an encoder-decoder, or from an encoder, which becomes the source side."""
        return self.kind == other.kind or not (other.SOURCE or other.causal)

    def compare_with(self, other: BaseSettings) -> Iterator[tuple[str, Any, Any]]:
        yield from super().compare_with(other)
        if not other.SOURCE:  # its source side is the other's only stack
            theirs, side = other.model_dump(mode="json"), self.encoder.model_dump(mode="json")
            yield from ((f"encoder.{key}", value, theirs[key]) for key, value in side.items() if value is not None)

    def build(self, vocabulary_size: int, context: int, source_vocabulary_size: int | None = None) -> "EncoderDecoder":
        return EncoderDecoder(self, vocabulary_size, context, source_vocabulary_size)


class EncoderDecoder(OneStack):
    """`stack` and `embedding` are the decoder's; source_vocabulary_size: None = one vocabulary for both sides."""

    needs_source = True
    init_prefixes = {"encoder.": "stack.", "source_embedding.": "embedding."}

    def __init__(self, settings: Settings, vocabulary_size: int, context: int, source_vocabulary_size: int | None = None) -> None:
        side, cross = settings.source_stack, settings.cross_attention
        super().__init__(settings, vocabulary_size, context, None if cross is None else CrossAttentionSpec(cross, side.d_model))
        shares = settings.shared_embeddings and source_vocabulary_size is None and side.d_model == settings.d_model
        tokens = self.embedding.tokens if shares else nn.Embedding(source_vocabulary_size or vocabulary_size, side.d_model)
        self.source_embedding = build_embedding(settings, side, tokens, context)
        self.encoder = Stack(side, False, self.source_embedding.position)
        init_weights(
            nn.ModuleList([self.source_embedding, self.encoder]), self.encoder.residual_outputs, None, settings.init_std, settings.init
        )

    def stacks(self) -> Sequence[ModelStack]:
        encoder = ModelStack("encoder", self.encoder, "source_embedding", rows="source", attention="encoder.self")
        return [*super().stacks(), encoder]

    def encode(self, source: Tokens) -> SourceMemory:
        return self._encode(source)[0]

    def forward(
        self, inputs: Tokens, source: Tokens | SourceMemory | None = None, at: Tensor | None = None, state: State | None = None
    ) -> ForwardOutput:
        """As of every model. A memory may have fewer rows than `inputs`: each then serves as many neighbouring rows."""
        if source is None:
            raise ValueError("an encoder-decoder needs a source to read")
        memory, penalty = (source, None) if isinstance(source, SourceMemory) else self._encode(source)
        mixed = self.decode(inputs, memory, at, state)
        if penalty is None:
            return mixed
        return mixed._replace(penalty=penalty if mixed.penalty is None else penalty + mixed.penalty)

    def _encode(self, source: Tokens) -> tuple[SourceMemory, Any]:
        token_positions = source.token_positions if source.token_positions is not None else TokenPositions(source.ids.shape[1])
        encoded = self.encoder(self.source_embedding(source, token_positions), token_positions)
        return self.stack.recall(encoded.y, token_positions), encoded.penalty
