"""An encoder-decoder: a bidirectional encoder, and a causal decoder with cross-attention to the encoder's output.

Keys and values of the cross-attention are computed once per source. With sinusoidal positions, post-norm, relu and
scaled, shared embeddings it is the Transformer of Vaswani et al. 2017, arXiv:1706.03762, section 3.1; with learned
positions, an embedding norm and gelu BART; with t5 positions, RMSNorm and unscaled attention scores T5.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.layers.copy_attention import CopyAttention
from mini_tf.nn.mixer import ForwardOutput, MixerSettings, describe_restrictions, sum_penalties
from mini_tf.nn.model import ModelSettings, OneStack, build_embedding
from mini_tf.nn.model_stack import ModelStack
from mini_tf.nn.positional_encoding import PositionalEncodingSettings
from mini_tf.nn.stack import CrossAttentionSpec, Stack, StackSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_cache import SourceMemory
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.nn.weights import init_weights
from mini_tf.recipe.kind_settings import Direction, PositionLimit, inference_settings
from mini_tf.recipe.kind_settings import ModelSettings as BaseSettings
from mini_tf.recipe.kinds import KindOf, OneOrMore, Rule, Rules, Section, default_kind


class EncoderSettings(Section):
    """Settings of the encoder that differ from the decoder's; null: the same."""

    d_model: int | None = Field(None, ge=1, le=65536)
    """Width of the encoder's hidden states."""
    n_layers: int | None = Field(None, ge=1, le=1024)
    """Number of layers."""
    n_heads: int | None = Field(None, ge=1, le=1024)
    """Attention heads per layer."""
    d_ff: int | None = Field(None, ge=0, le=1048576)
    """Width of the feed-forward layer; default: the decoder's, or 4 d_model if the widths differ."""
    attention: Annotated[tuple[Annotated[MixerSettings, KindOf("attention")], ...], OneOrMore()] | None = None
    """One mixer, or a list of mixers that is repeated over the layers."""
    positions: Annotated[PositionalEncodingSettings, KindOf("positions")] | None = None
    """Positional encoding of the encoder."""


class Settings(ModelSettings):
    ALIASES = ("t5", "bart", "seq2seq", "transformer")
    DIRECTIONS = frozenset({"causal"})
    SOURCE = True
    OBJECTIVE = "seq2seq"

    encoder: EncoderSettings = EncoderSettings()
    """Settings of the encoder; keys that are not given are the decoder's."""
    cross_attention: Annotated[MixerSettings, KindOf("attention")] | None = Field(
        default_factory=default_kind("attention", "softmax")
    )
    """Cross-attention of the decoder; null: none, to measure its benefit."""
    shared_embeddings: bool = True
    """Encoder and decoder share the token embedding, if they have one vocabulary and the same d_model."""
    copy_attention: bool = False
    """Copy mechanism (pointer-generator): each output token is generated or copied from the source, with learned
    probabilities."""

    @property
    def source_stack(self) -> StackSettings:
        """The complete settings of the encoder."""
        changes = {
            name: value for name in EncoderSettings.model_fields if (value := getattr(self.encoder, name)) is not None
        }
        if self.encoder.d_model not in (None, self.d_model):
            changes.setdefault("d_ff", None)
        return self.model_copy(update=changes)

    @property
    def one_vocabulary_key(self) -> str:
        return "copy_attention" if self.copy_attention else ""

    def rules(self) -> Rules:
        yield from super().rules()
        encoder, reported = self.source_stack, set(StackSettings.rules(self))
        for rule in [*StackSettings.rules(encoder), *self.direction_rules(encoder.attention, "bidirectional")]:
            if rule not in reported:  # a fault of a shared key is reported once
                yield self._of_encoder(*rule)
        cross = self.cross_attention
        if cross is not None and "cross" not in cross.supports:
            yield "cross_attention", f"{cross.kind} attention does not support cross-attention; use softmax"
        elif cross is not None:
            for rule in (Rule(*rule) for rule in cross.rules_with(self.attention_dims(encoder.d_model))):
                yield rule._replace(key="cross_attention", depends=(*rule.depends, "encoder.d_model"))
        if self.n_types:
            yield "n_types", "an encoder-decoder has no token types; use 0"

    @staticmethod
    def _of_encoder(key: str, message: str, depends: Iterable[str] = ()) -> Rule:
        """A rule of a stack with the keys of the encoder; a key that is not set there is the decoder's."""
        keys = {name: f"encoder.{name}" for name in (key, *depends) if name in EncoderSettings.model_fields}
        return Rule(keys.get(key, "encoder"), message, (key, *depends, *keys.values()))

    def all_mixers(self) -> Sequence[MixerSettings]:
        return [
            *self.mixers(),
            *self.source_stack.attention,
            *([] if self.cross_attention is None else [self.cross_attention]),
        ]

    def position_limits(self, context: int) -> Sequence[PositionLimit]:
        positions = self.source_stack.positions
        key = "positions" if self.encoder.positions is None else "encoder.positions"
        n_positions = positions.max_positions(context)
        return [
            *super().position_limits(context),
            *([] if n_positions is None else [PositionLimit(key, positions.kind, n_positions, source=True)]),
        ]

    def stacks(self) -> Mapping[str, StackSettings]:
        return {"stack": self, "encoder": self.source_stack}

    def describe_attention(self, boundary: str, direction: Direction) -> str:
        source = ", and to the whole source" if self.cross_attention is not None else ", but not to the source"
        target = (
            "each target token attends to earlier target tokens and"
            f" itself{describe_restrictions(self.attention)}{source}"
        )
        return (
            f"{target}; each source token attends to all source"
            f" tokens{describe_restrictions(self.source_stack.attention)}"
        )

    def can_init_from(self, other: BaseSettings) -> bool:
        """From an encoder-decoder, or from an encoder, which becomes the encoder."""
        return self.kind == other.kind or not (other.SOURCE or other.causal)

    def compare_with(self, other: BaseSettings) -> Iterator[tuple[str, Any, Any]]:
        cross, replaced = self.cross_attention, getattr(other, "cross_attention", None)
        shared = None if cross is None or replaced is None else cross.shared_keys(replaced)
        for key, ours, theirs in super().compare_with(other):
            if key == "copy_attention":  # its weights are new, or unused
                continue
            if key == "cross_attention" and shared is not None:
                ours, theirs = ({name: settings[name] for name in sorted(shared)} for settings in (ours, theirs))
            yield key, ours, theirs
        if not other.SOURCE:  # the encoder is initialized from the other's only stack
            theirs, encoder = inference_settings(other), inference_settings(self.encoder)
            yield from ((f"encoder.{key}", value, theirs[key]) for key, value in encoder.items() if value is not None)

    def build(self, vocabulary_size: int, context: int, source_vocabulary_size: int | None = None) -> "EncoderDecoder":
        return EncoderDecoder(self, vocabulary_size, context, source_vocabulary_size)


class EncoderDecoder(OneStack):
    """`stack` and `embedding` are the decoder's; source_vocabulary_size None: one vocabulary for source and target."""

    needs_source = True
    init_prefixes = {"encoder.": "stack.", "source_embedding.": "embedding."}

    def __init__(
        self, settings: Settings, vocabulary_size: int, context: int, source_vocabulary_size: int | None = None
    ) -> None:
        encoder, cross = settings.source_stack, settings.cross_attention
        super().__init__(
            settings, vocabulary_size, context, None if cross is None else CrossAttentionSpec(cross, encoder.d_model)
        )
        shares = settings.shared_embeddings and source_vocabulary_size is None and encoder.d_model == settings.d_model
        tokens = (
            self.embedding.tokens
            if shares
            else nn.Embedding(source_vocabulary_size or vocabulary_size, settings.d_embedding or encoder.d_model)
        )
        self.source_embedding = build_embedding(settings, encoder, tokens, context)
        self.encoder = Stack(encoder, False, self.source_embedding.position)
        init_weights(
            nn.ModuleList([self.source_embedding, self.encoder]),
            self.encoder.residual_outputs,
            None,
            settings.init_std,
            settings.init,
        )
        self.copy_attention = (
            CopyAttention(settings.d_model, encoder.d_model, settings.init_std) if settings.copy_attention else None
        )
        if settings.copy_attention and source_vocabulary_size is not None:
            raise ValueError("copy attention needs one vocabulary for source and target")

    def stacks(self) -> Sequence[ModelStack]:
        encoder = ModelStack("encoder", self.encoder, "source_embedding", rows="source", attention="encoder.self")
        return [*super().stacks(), encoder]

    def encode(self, source: Tokens) -> SourceMemory:
        return self._encode(source)[0]

    def forward(
        self,
        inputs: Tokens,
        source: Tokens | SourceMemory | None = None,
        at: Tensor | None = None,
        state: State | None = None,
    ) -> ForwardOutput:
        """If an encoded source has fewer rows than `inputs`, each serves a group of neighboring rows (beams)."""
        if source is None:
            raise ValueError("an encoder-decoder needs a source")
        memory, penalty = (source, None) if isinstance(source, SourceMemory) else self._encode(source)
        positions = inputs.token_positions or self._next_token_positions(inputs.ids, state)
        mixed = self.decode(inputs, memory, at, state)
        if self.copy_attention is not None and memory.copy is not None:
            visibility = memory.visibility(positions, inputs.ids.shape[0], inputs.ids.device)
            mixed = mixed._replace(copies=self.copy_attention(mixed.y, memory.copy, visibility, at))
        return mixed._replace(penalty=sum_penalties(penalty, mixed.penalty))

    def _encode(self, source: Tokens) -> tuple[SourceMemory, Any]:
        token_positions = (
            source.token_positions if source.token_positions is not None else TokenPositions(source.ids.shape[1])
        )
        encoded = self.encoder(self.source_embedding(source, token_positions), token_positions)
        memory = self.stack.recall(encoded.y, token_positions)
        if self.copy_attention is not None:
            memory = memory._replace(
                copy=self.copy_attention.recall(encoded.y, source.ids, token_positions, self.special_ids)
            )
        return memory, encoded.penalty
