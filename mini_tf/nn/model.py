"""A model: an arrangement of stacks with an embedding and a head; here the arrangement of one stack, encoder or decoder.

`model(inputs, source, at, state) -> ForwardOutput` gives hidden vectors, `model.logits(hidden, words)` scores them: apart, so that
scores are made only where somebody asks for them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.layers.embedding import Embedding
from mini_tf.nn.layers.head import Head, Transform
from mini_tf.nn.layers.ngrams import NGrams
from mini_tf.nn.layers.norm import build_norm
from mini_tf.nn.mixer import ForwardOutput, Mixer, MixerSettings
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.stack import CrossAttentionSpec, SourceMemory, Stack, StackSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.nn.weights.init import init_weights
from mini_tf.recipe import kind_settings
from mini_tf.recipe.kind_settings import Direction
from mini_tf.recipe.kinds import Rules


class ModelSettings(StackSettings, kind_settings.ModelSettings):
    """One stack between an embedding and a head."""

    tied: bool = True
    """The output table is the embedding's own."""
    head: Literal["linear", "bert"] = "linear"
    """bert: dense, activation and norm before the table, and a bias after it."""
    embed_norm: bool = False
    """A norm on the embeddings."""
    embed_scale: bool = False
    """Token vectors are multiplied by sqrt(d_model), as in the 2017 paper."""
    ngrams: tuple[Annotated[int, Field(ge=2, le=10**8)], ...] = Field((), max_length=8)
    """SequenceKind of further tables, of pairs of tokens, triples, ...: what stands just before is added to the embedding."""
    n_types: int = Field(0, ge=0, le=1024)
    """Segment embeddings (BERT has 2); 0 = none."""

    def rules(self) -> Rules:
        yield from super().rules()
        yield from kind_settings.ModelSettings.rules(self)
        yield from self.direction_rules(self.attention, "causal" if self.causal else "bidirectional")

    def direction_rules(self, mixers: Iterable[MixerSettings], direction: Direction) -> Rules:
        """A fault for each mixer whose self-attention cannot have the direction that its stack asks of it."""
        for mixer in mixers:
            if direction not in mixer.DIRECTIONS:
                yield "attention", f"{mixer.kind} attention cannot be {direction}, as the {self.kind} asks of it"

    def mixers(self) -> Sequence[MixerSettings]:
        return self.attention

    def position_limits(self, context: int) -> Sequence[kind_settings.PositionLimit]:
        longest = self.positions.max_positions(context)
        return [] if longest is None else [kind_settings.PositionLimit("positions", self.positions.kind, longest)]

    def stacks(self) -> Mapping[str, StackSettings]:
        """The settings of its stacks, by their paths in the model; its own first."""
        return {"stack": self}

    def build_stack(self, position: PositionalEncoding, cross: CrossAttentionSpec | None = None) -> Stack:
        """The stack of its own tokens."""
        return Stack(self, self.causal, position, cross)

    def describe_attention(self, border: str, direction: Direction) -> str:
        return super().describe_attention(border, direction) + describe_restrictions(self.attention)

    def build(self, vocabulary_size: int, context: int, source_vocabulary_size: int | None = None) -> "Model":
        """The model for a vocabulary, whose texts are `context` tokens long in training; weights are drawn from torch's generator.

        source_vocabulary_size: of the source side of pairs, where that has a vocabulary of its own.
        """
        return OneStack(self, vocabulary_size, context)

    def make_norm(self, d_model: int | None = None) -> nn.Module:
        """A norm of this kind, of the stack's width or another."""
        return build_norm(self.norm, d_model or self.d_model, self.norm_eps, self.bias, self.norm_weight)


def describe_restrictions(mixers: Sequence[MixerSettings]) -> str:
    """What each mixer of a stack leaves out, in words; nothing where none does."""
    layers = [f"{mixer.kind}: {mixer.restriction or 'all of these'}" for mixer in mixers]
    return f" ({', then '.join(dict.fromkeys(layers))})" if any(mixer.restriction for mixer in mixers) else ""


SequenceKind = Literal["own", "source", "latent"]
"""What vectors represent: tokens of the model's own text, tokens of a source, or none of them."""


class ModelStack(NamedTuple):
    """One stack of a model, and what others need to know of it.

    name: its path in the model. embedding: path of what its vectors come from, an `Embedding` or a parameter; None: another stack.
    rows: what its vectors stand for; memory: the same of what its cross mixers attend to. attention, cross: what heads of its
    two sorts of mixers are called. n_above: layers between its last one and the output.
    """

    name: str
    stack: Stack
    embedding: str | None
    rows: SequenceKind = "own"
    memory: SequenceKind = "source"
    attention: str = "decoder.self"
    cross: str = "cross"
    n_above: int = 0


class Model(nn.Module):
    """The contract of every model.

    d_model: width of its hidden vectors; n_types: segment embeddings, 0 = none; needs_source: it attends to a source; head: what
    makes scores of hidden vectors.
    """

    context: int
    d_model: int
    n_types: int
    needs_source: bool = False
    head: nn.Module
    init_prefixes: Mapping[str, str] = {}
    """Where modules that another model lacks are found in that one (`init_from`): beginnings of names here, and there."""

    def stacks(self) -> Sequence[ModelStack]:
        """Its stacks, those first that are nearest to the output."""
        raise NotImplementedError

    def fast_decoding(self) -> "OneStack | None":
        """Itself where embedding, causal stack and head are all that the next token's scores need, so that the fast decoder may
        compute them in its place; None: it may not."""
        return None

    def max_length(self, rows: SequenceKind = "own") -> int | None:
        """The longest text whose tokens all have a position; None where there is no such limit."""
        parts = dict(self.named_modules())
        embeddings = [parts.get(str(one.embedding)) for one in self.stacks() if one.rows == rows]
        ends = [
            part.position.max_positions for part in embeddings if isinstance(part, Embedding) and part.position.max_positions is not None
        ]
        return min(ends, default=None)

    def start(self, batch: int) -> State:
        """The empty state: give it to begin remembering."""
        raise NotImplementedError

    def forward(
        self, inputs: Tokens, source: Tokens | SourceMemory | None = None, at: Tensor | None = None, state: State | None = None
    ) -> ForwardOutput:
        """Hidden vectors (B, L, D) of `inputs`, or (T, D) at the flat indices `at` into (B, L).

        source: what a model of pairs reads besides, as tokens or as what it has read of them already.
        """
        raise NotImplementedError

    def encode(self, source: Tokens) -> SourceMemory:
        """What a model of pairs keeps of a source (B, M), to be given to `forward` in place of it."""
        raise NotImplementedError

    def logits(self, hidden: Tensor, words: Tensor | None = None) -> Tensor:
        """Scores over the vocabulary (..., V), or over the candidates `words` alone."""
        scores: Tensor = self.head(hidden, words)
        return scores

    def cross_entropy(self, hidden: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """The sum of -log p(label) in nats for hidden vectors (T, D) and labels (T,): `logits` and their loss in one.

        smoothing: the share of each label's weight that is spread over the vocabulary.
        """
        loss: Tensor = self.head.cross_entropy(hidden, labels, smoothing)  # type: ignore[operator]
        return loss

    def replace_head(self, head: nn.Module) -> None:
        """Give the model another head: `logits` are then the answers of a task, in place of scores over the vocabulary."""
        self.head = head

    def trim(self, state: State) -> State:
        """The state without what can no longer matter; what follows is the same."""
        raise NotImplementedError

    def mixers(self) -> list[Mixer]:
        return [module for module in self.modules() if isinstance(module, Mixer)]

    def weights(self) -> dict[str, Tensor]:
        """What a file holds: every tensor by its first name, once where several names share it; not copies."""
        return unique_tensors(self)

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Take over what `weights` gave; names and shapes must be equal."""
        copy_tensors(self.weights(), weights)


def unique_tensors(module: nn.Module, excluding: nn.Module | None = None) -> dict[str, Tensor]:
    """Parameters and buffers by their first names, once where several names share one, without those of a part; not copies."""
    known = set() if excluding is None else {id(tensor) for tensor in excluding.state_dict(keep_vars=True).values()}
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor))
    return {name: tensor.detach() for number, (name, tensor) in named.items() if number not in known}


def copy_tensors(tensors: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    """Copy what was found into the tensors of the same names, and of the same shapes."""
    for name, tensor in tensors.items():
        tensor.copy_(source[name])


class OneStack(Model):
    """An embedding, a stack and a head. cross: its cross mixers, where it has some."""

    def __init__(self, settings: ModelSettings, vocabulary_size: int, context: int, cross: CrossAttentionSpec | None = None) -> None:
        super().__init__()
        self.context, self.d_model, self.n_types = context, settings.d_model, settings.n_types
        tokens = nn.Embedding(vocabulary_size, settings.d_model)
        self.embedding = build_embedding(settings, settings, tokens, context)
        self.stack = settings.build_stack(self.embedding.position, cross)
        bert = settings.head == "bert"
        transform = Transform(settings.d_model, settings.activation, settings.make_norm()) if bert else None
        head = Head(self.embedding.tokens, settings.tied, transform, bias=bert)
        self.head = head
        untied = None if settings.tied else head.linear
        init_weights(self, self.stack.residual_outputs, untied, settings.init_std, settings.init, self.stack.n_passes)

    def stacks(self) -> Sequence[ModelStack]:
        return [ModelStack("stack", self.stack, "embedding", attention="decoder.self" if self.stack.causal else "encoder.self")]

    def fast_decoding(self) -> "OneStack | None":
        plain = (type(self).forward, type(self).decode, type(self.stack).forward) == (OneStack.forward, OneStack.decode, Stack.forward)
        return self if plain and self.stack.causal else None

    def start(self, batch: int) -> State:
        before: State = {"before": self.embedding.start(batch)} if self.embedding.reach else {}
        return {"seen": 0, "layers": self.stack.start(batch), **before}

    def trim(self, state: State) -> State:
        return state | {"layers": self.stack.trim(state["layers"])}

    def forward(
        self, inputs: Tokens, source: Tokens | SourceMemory | None = None, at: Tensor | None = None, state: State | None = None
    ) -> ForwardOutput:
        if source is not None:
            raise ValueError("a model of one stack reads no source")
        return self.decode(inputs, None, at, state)

    def decode(self, inputs: Tokens, memory: SourceMemory | None, at: Tensor | None, state: State | None) -> ForwardOutput:
        """`forward` of the stack, whose cross mixers, where it has some, read `memory`."""
        token_positions = inputs.token_positions if inputs.token_positions is not None else self._next_token_positions(inputs.ids, state)
        layers = None if state is None else state["layers"]
        before = None if state is None else state.get("before")
        mixed: ForwardOutput = self.stack(self.embedding(inputs, token_positions, before), token_positions, memory, at, layers)
        if state is None:
            return mixed._replace(state=None)
        after = self._after(token_positions, mixed.state or {})
        if before is not None:
            after["before"] = torch.cat([before, inputs.ids], dim=1)[:, -self.embedding.reach :]
        return mixed._replace(state=after)

    def _next_token_positions(self, ids: Tensor, state: State | None) -> TokenPositions:
        """Positions of tokens that follow what each row has seen."""
        length = ids.shape[1]
        if state is None:
            return TokenPositions(length)
        seen = state["seen"]
        if isinstance(seen, int):
            return TokenPositions(length, seen)
        positions = seen[:, None] + torch.arange(length, device=ids.device)
        return TokenPositions(length, 0, state["segment"][:, None].expand(-1, length), positions)

    def _after(self, token_positions: TokenPositions, layers: State) -> State:
        """The state after tokens at `token_positions`; rows continue the document that they ended with."""
        given = token_positions.segments if token_positions.segments is not None else token_positions.positions
        if given is None:
            return {"seen": token_positions.start + token_positions.length, "layers": layers}
        segments, positions = token_positions.tensors(given.shape[0], given.device)
        if (segments[:, -1] == 0).any():
            raise ValueError("a row that ends in padding cannot be continued: pad prompts on the left")
        return {"seen": positions[:, -1] + 1, "segment": segments[:, -1], "layers": layers}


def build_embedding(settings: ModelSettings, stack: StackSettings, tokens: nn.Embedding, context: int) -> Embedding:
    """The embedding before a stack of the model; `tokens` is its table of token vectors, which others may share."""
    vocabulary_size, d_model = tokens.weight.shape
    position = stack.positions.build(d_model, stack.n_heads, stack.head_dim, context)
    scale = d_model**0.5 if settings.embed_scale else 1.0
    embed_norm = settings.make_norm(d_model) if settings.embed_norm else nn.Identity()
    ngrams = NGrams(vocabulary_size, d_model, settings.ngrams) if settings.ngrams else None
    types = nn.Embedding(settings.n_types, d_model) if settings.n_types else None
    return Embedding(tokens, position, ngrams, types, embed_norm, scale, settings.dropout_rate)
