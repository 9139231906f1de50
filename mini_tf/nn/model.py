"""The contract of every model, and the model of one stack (encoder or decoder).

`model(inputs, source, at, state) -> ForwardOutput` returns hidden states, and `model.logits(hidden, copies=...)` their
logits. They are separate so that logits are computed only for the targets.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.layers.copy_attention import Copies
from mini_tf.nn.layers.embedding import Embedding
from mini_tf.nn.layers.feed_forward import Activation
from mini_tf.nn.layers.head import Head, Transform
from mini_tf.nn.layers.ngram_features import NGrams
from mini_tf.nn.layers.norm import build_norm
from mini_tf.nn.layers.word_characters import Subwords
from mini_tf.nn.mixer import ForwardOutput, Mixer, MixerSettings, describe_restrictions
from mini_tf.nn.model_stack import ModelStack, SequenceKind
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.stack import AttentionLayer, CrossAttentionSpec, Stack, StackSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_cache import SourceMemory
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.nn.weights import copy_tensors, init_weights, unique_tensors
from mini_tf.recipe import kind_settings
from mini_tf.recipe.kinds import Rules


class ModelSettings(StackSettings, kind_settings.ModelSettings):
    """Settings of an embedding, one stack and a head."""

    tied: bool = True
    """The output layer shares the weights of the token embedding."""
    head: Literal["linear", "bert"] = "linear"
    """linear, or BERT's masked-LM head: dense, activation and norm before the output layer, which has a bias."""
    head_activation: Activation | None = None
    """Activation of BERT's head; null: that of the feed-forward layers."""
    embed_norm: bool = False
    """Normalize the embeddings."""
    embed_scale: bool = False
    """Multiply token embeddings by the root of their width, sqrt(d_model), as in Vaswani et al. 2017."""
    d_embedding: int | None = Field(None, ge=1, le=65536)
    """Width of the embedding tables, with a projection to d_model, as in ELECTRA; default d_model."""
    ngrams: tuple[Annotated[int, Field(ge=2, le=10**8)], ...] = Field((), max_length=8)
    """Rows of the embedding tables of bigrams, trigrams, ... that are added to the token embedding."""
    subwords: int = Field(0, ge=0, le=10**8)
    """Rows of a table of character n-grams within tokens, whose mean is added to the token embedding; 0 = none."""
    output_bias: bool = False
    """The output layer over the vocabulary has a bias also with `head: linear`."""
    n_types: int = Field(0, ge=0, le=1024)
    """Number of token types (segment embeddings; BERT has 2); 0 = none."""

    def rules(self) -> Rules:
        yield from super().rules()
        yield from kind_settings.ModelSettings.rules(self)
        yield from self.direction_rules(self.attention, "causal" if self.causal else "bidirectional")

    def direction_rules(self, mixers: Iterable[MixerSettings], direction: kind_settings.Direction) -> Rules:
        """A fault for each mixer whose self-attention does not support `direction`."""
        for mixer in mixers:
            if direction not in mixer.supports:
                message = f"does not support {direction} attention, which model {self.kind} needs"
                message = message if kind_settings.directions_of(mixer.supports) else "is cross-attention only"
                yield "attention", f"{mixer.kind} attention {message}"

    def mixers(self) -> Sequence[MixerSettings]:
        return self.attention

    def position_limits(self, context: int) -> Sequence[kind_settings.PositionLimit]:
        length = self.positions.max_positions(context)
        return [] if length is None else [kind_settings.PositionLimit("positions", self.positions.kind, length)]

    def stacks(self) -> Mapping[str, StackSettings]:
        """Settings of its stacks by their paths in the model, the stack before the head first."""
        return {"stack": self}

    def attention_layers(self) -> Sequence[AttentionLayer]:
        """The attention layers that `minitf cost --lengths` measures; default: those of the stack before the head."""
        return next(iter(self.stacks().values())).attention_layers_of(self.causal)

    def build_stack(
        self, positional_encoding: PositionalEncoding, cross_spec: CrossAttentionSpec | None = None
    ) -> Stack:
        """The stack before the head."""
        return Stack(self, self.causal, positional_encoding, cross_spec)

    def describe_attention(self, boundary: str, direction: kind_settings.Direction) -> str:
        return super().describe_attention(boundary, direction) + describe_restrictions(self.attention)

    def build(self, vocabulary_size: int, context: int, source_vocabulary_size: int | None = None) -> "Model":
        """The model with weights drawn from torch's generator; context: maximum length in training;
        source_vocabulary_size: of an encoder whose vocabulary differs from the decoder's.
        """
        return OneStack(self, vocabulary_size, context)

    @property
    def head_bias(self) -> bool:
        """The output layer has a bias also with `head: linear`."""
        return self.output_bias

    def build_head(self, tokens: nn.Embedding) -> Head:
        """The head; `tokens`: the token embedding, whose weight it uses if `tied`."""
        d_embedding, bert = tokens.embedding_dim, self.head == "bert"
        transform: nn.Module | None = None
        if bert:
            activation = self.head_activation or self.activation
            transform = Transform(self.d_model, activation, self.make_norm(d_embedding), d_embedding)
        elif d_embedding != self.d_model:
            transform = nn.Linear(self.d_model, d_embedding, bias=False)
        return Head(tokens, self.tied, transform, bias=bert or self.head_bias)

    def scaled(self, width: float, depth: float) -> "ModelSettings":
        """Settings of a smaller model: shares of the width, in whole heads of the same size, and of the layers."""
        n_heads, head_dim = max(1, round(width * self.n_heads)), self.head_dim
        n_kv_heads = None if self.n_kv_heads is None else math.gcd(n_heads, max(1, round(width * self.n_kv_heads)))
        d_model = n_heads * head_dim if self.d_k is None else max(1, round(width * self.d_model))
        d_ff, n_layers = self.d_ff and max(1, round(width * self.d_ff)), max(1, round(depth * self.n_layers))
        sizes = {"d_model": d_model, "n_heads": n_heads, "n_kv_heads": n_kv_heads, "d_ff": d_ff, "n_layers": n_layers}
        return self.model_copy(update=sizes)

    def make_norm(self, d_model: int | None = None) -> nn.Module:
        """A norm of this kind; default width: d_model."""
        return build_norm(self.norm, d_model or self.d_model, self.norm_eps, self.bias, self.norm_weight)


class Model(nn.Module):
    """The contract of every model.

    settings: those it was built from; d_model: width of the hidden states; n_types: token types, 0 = none;
    needs_source: `forward` needs a source; head: from hidden states to logits; special_ids: never copied from a source.
    """

    settings: ModelSettings
    context: int
    d_model: int
    n_types: int
    needs_source: bool = False
    head: nn.Module
    init_prefixes: Mapping[str, str] = {}
    """For `init_from`: name prefixes of modules that the other model may lack, and the prefixes to load instead."""
    special_ids: Collection[int] = ()

    def stacks(self) -> Sequence[ModelStack]:
        """Its stacks, those nearest to the output first."""
        raise NotImplementedError

    def fast_decoding(self) -> "OneStack | None":
        """The model if it is only an embedding, a causal stack and a head, so the fast decoder applies; else None."""
        return None

    def max_length(self, rows: SequenceKind = "input") -> int | None:
        """Maximum number of tokens that the positional encodings allow; None: unlimited."""
        limits = (embedding.position.max_positions for embedding in self.embeddings(rows).values())
        return min((limit for limit in limits if limit is not None), default=None)

    def embeddings(self, rows: SequenceKind = "input") -> dict[str, Embedding]:
        """The embeddings of the tokens of a sequence, by their paths in the model."""
        modules = dict(self.named_modules())
        paths = (path for stack in self.stacks() for path in stack.embedding_paths(rows))
        return {path: module for path in paths if isinstance(module := modules.get(path), Embedding)}

    def start(self, batch: int) -> State:
        """The empty state for the first `forward`."""
        raise NotImplementedError

    def forward(
        self,
        inputs: Tokens,
        source: Tokens | SourceMemory | None = None,
        at: Tensor | None = None,
        state: State | None = None,
    ) -> ForwardOutput:
        """Hidden states (B, L, D) of `inputs`, or (T, D) at the flat indices `at` into (B, L).

        source: only for an encoder-decoder; tokens, or the output of `encode`.
        """
        raise NotImplementedError

    def encode(self, source: Tokens) -> SourceMemory:
        """Encode a source (B, M) once; `forward` accepts the result in place of its tokens."""
        raise NotImplementedError

    def logits(self, hidden: Tensor, candidates: Tensor | None = None, copies: Copies | None = None) -> Tensor:
        """Logits over the vocabulary (..., V), or over the token ids `candidates`: (W,), or (..., W) for each.

        copies: of these hidden states, for log-probabilities; without, the logits are of generated tokens alone.
        """
        return self.head(hidden, candidates) if copies is None else copies.mix(self.head(hidden), candidates)

    def cross_entropy(
        self, hidden: Tensor, labels: Tensor, smoothing: float = 0.0, copies: Copies | None = None
    ) -> Tensor:
        """The sum of -log p(label) in nats for hidden states (T, D) and labels (T,): logits and loss fused.

        smoothing: share of the target probability that is spread evenly over the vocabulary; copies: as in `logits`.
        """
        return self.head.cross_entropy(hidden, labels, smoothing, copies)  # type: ignore[operator, no-any-return]

    def replace_head(self, head: nn.Module) -> None:
        """Replace the head; `logits` then returns the outputs of a task instead of scores over the vocabulary."""
        self.head = head

    def trim(self, state: State) -> State:
        """Drop entries of the state that later tokens cannot attend to; outputs do not change."""
        raise NotImplementedError

    def carry(self, state: State) -> State:
        """What is kept of the state for the next row of a stream; a memory of limited length drops what exceeds it."""
        return self.trim(state)

    def mixers(self) -> list[Mixer]:
        return [module for module in self.modules() if isinstance(module, Mixer)]

    def weights(self) -> dict[str, Tensor]:
        """Parameters and buffers by name, tied ones once, as stored in a file; not copies."""
        return unique_tensors(self)

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy `weights` into the model; names and shapes must be equal."""
        copy_tensors(self.weights(), weights)


class OneStack(Model):
    """An embedding, a stack and a head. cross_spec: cross-attention of the stack, if any."""

    def __init__(
        self, settings: ModelSettings, vocabulary_size: int, context: int, cross_spec: CrossAttentionSpec | None = None
    ) -> None:
        super().__init__()
        self.settings, self.context, self.d_model, self.n_types = settings, context, settings.d_model, settings.n_types
        tokens = nn.Embedding(vocabulary_size, settings.d_embedding or settings.d_model)
        self.embedding = build_embedding(settings, settings, tokens, context)
        self.stack = settings.build_stack(self.embedding.position, cross_spec)
        self.head = head = settings.build_head(tokens)
        untied = None if settings.tied else head.linear
        init_weights(self, self.stack.residual_outputs, untied, settings.init_std, settings.init, self.stack.n_passes)

    def stacks(self) -> Sequence[ModelStack]:
        attention = "decoder.self" if self.stack.causal else "encoder.self"
        return [ModelStack("stack", self.stack, "embedding", attention=attention)]

    def fast_decoding(self) -> "OneStack | None":
        methods = type(self).forward, type(self).decode, type(self.stack).forward
        plain = methods == (OneStack.forward, OneStack.decode, Stack.forward)
        return self if plain and self.stack.causal else None

    def start(self, batch: int) -> State:
        before: State = {"before": self.embedding.start(batch)} if self.embedding.n_previous else {}
        return {"seen": 0, "layers": self.stack.start(batch), **before}

    def trim(self, state: State) -> State:
        return state | {"layers": self.stack.trim(state["layers"])}

    def carry(self, state: State) -> State:
        return state | {"layers": self.stack.carry(state["layers"])}

    def forward(
        self,
        inputs: Tokens,
        source: Tokens | SourceMemory | None = None,
        at: Tensor | None = None,
        state: State | None = None,
    ) -> ForwardOutput:
        if source is not None:
            raise ValueError("this model takes no source")
        return self.decode(inputs, None, at, state)

    def decode(
        self, inputs: Tokens, memory: SourceMemory | None, at: Tensor | None, state: State | None
    ) -> ForwardOutput:
        """`forward` with an encoded source. Without `seen` in the state the caller numbers the next tokens, too."""
        token_positions = inputs.token_positions or self._next_token_positions(inputs.ids, state)
        layers, before = (None, None) if state is None else (state["layers"], state.get("before"))
        x = self.embedding(inputs, token_positions, before)
        mixed: ForwardOutput = self.stack(x, token_positions, memory, at, layers)
        if state is None:
            return mixed._replace(state=None)
        after = self._after(token_positions, mixed.state or {}) if "seen" in state else State(layers=mixed.state)
        if before is not None:
            after["before"] = torch.cat([before, inputs.ids], dim=1)[:, -self.embedding.n_previous :]
        return mixed._replace(state=after)

    def _next_token_positions(self, ids: Tensor, state: State | None) -> TokenPositions:
        """Positions of tokens that continue the rows of `state`."""
        length, seen = ids.shape[1], 0 if state is None else state["seen"]
        if state is None or isinstance(seen, int):
            return TokenPositions(length, seen)
        segments = state["segment"][:, None].expand(-1, length)
        return TokenPositions(length, 0, segments, seen[:, None] + torch.arange(length, device=ids.device))

    def _after(self, token_positions: TokenPositions, layers: State) -> State:
        """The state after tokens at `token_positions`; the next tokens of a row continue its last document."""
        tensor = token_positions.segments if token_positions.segments is not None else token_positions.positions
        if tensor is None:
            return {"seen": token_positions.start + token_positions.length, "layers": layers}
        segments, positions = token_positions.tensors(tensor.shape[0], tensor.device)
        if (segments[:, -1] == 0).any():
            raise ValueError("a row that ends in padding cannot be continued: pad prompts on the left")
        return {"seen": positions[:, -1] + 1, "segment": segments[:, -1], "layers": layers}


def build_embedding(settings: ModelSettings, stack: StackSettings, tokens: nn.Embedding, context: int) -> Embedding:
    """The embedding of a stack; `tokens`: its token embedding, which may be shared."""
    vocabulary_size, width = tokens.weight.shape
    positions = stack.positions.build_layers(stack.n_layers, width, stack.n_heads, stack.head_dim, context)
    scale = width**0.5 if settings.embed_scale else 1.0
    embed_norm = settings.make_norm(width) if settings.embed_norm else nn.Identity()
    ngrams = NGrams(vocabulary_size, width, settings.ngrams) if settings.ngrams else None
    subwords = Subwords(vocabulary_size, width, settings.subwords) if settings.subwords else None
    types = nn.Embedding(settings.n_types, width) if settings.n_types else None
    project = nn.Linear(width, stack.d_model) if width != stack.d_model else None
    return Embedding(
        tokens, positions, ngrams, types, embed_norm, scale, settings.dropout_rate, project=project, subwords=subwords
    )
