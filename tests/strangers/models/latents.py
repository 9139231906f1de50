"""A few latent vectors read the text, go twice through the same layers, and are asked for every token by its
position.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mini_tf.nn.layers.head import Head
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.model import Model, ModelSettings, build_embedding
from mini_tf.nn.model_stack import ModelStack, SequenceKind
from mini_tf.nn.stack import CrossAttentionSpec, Stack, StackSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import DataFault


class Settings(ModelSettings):
    PACKS: ClassVar[bool] = False
    DIRECTIONS: ClassVar[Any] = frozenset({"bidirectional"})
    OBJECTIVE: ClassVar[str] = "masked"

    n_latents: int = 4

    def stacks(self) -> dict[str, StackSettings]:
        one_layer = self.model_copy(update={"n_layers": 1})
        return {"decoder": one_layer, "inner": self, "reader": one_layer}

    def build(self, vocabulary_size: int, context: int, source_vocabulary_size: int | None = None) -> "Latents":
        return Latents(self, vocabulary_size, context)


class Latents(Model):
    def __init__(self, settings: Settings, vocabulary_size: int, context: int) -> None:
        super().__init__()
        self.context, self.d_model, self.n_types = context, settings.d_model, 0
        self.embedding = build_embedding(settings, settings, nn.Embedding(vocabulary_size, settings.d_model), context)
        self.latents = nn.Parameter(torch.randn(settings.n_latents, settings.d_model))
        self.queries = nn.Embedding(context, settings.d_model)
        one_layer = settings.model_copy(update={"n_layers": 1})
        cross = CrossAttentionSpec(settings.attention[0], settings.d_model)
        self.reader = Stack(one_layer, False, None, cross, has_self_attn=False)
        self.inner = Stack(settings, False, None, n_passes=2)
        self.decoder = Stack(one_layer, False, None, cross, has_self_attn=False)
        self.head = Head(self.embedding.tokens, True, None, bias=False)

    def stacks(self) -> list[ModelStack]:
        n = self.inner.n_calls
        decoder = ModelStack("decoder", self.decoder, "queries", "input", "latent", cross_attn="decoder.cross")
        inner = ModelStack("inner", self.inner, None, "latent", attention="latent.self", n_above=1)
        reader = ModelStack(
            "reader", self.reader, "latents", "latent", "input", cross_attn="reader.cross", n_above=1 + n
        )
        return [decoder, inner, reader]

    def max_length(self, rows: SequenceKind = "input") -> int | None:
        return self.queries.num_embeddings

    def forward(
        self, inputs: Tokens, source: Any = None, at: Tensor | None = None, state: State | None = None
    ) -> ForwardOutput:
        token_positions = inputs.token_positions or TokenPositions(inputs.ids.shape[1])
        if inputs.ids.shape[1] > self.queries.num_embeddings:
            raise DataFault("a text is longer than the queries")
        latents, n = self.latents.expand(len(inputs.ids), -1, -1), TokenPositions(len(self.latents))
        read = self.reader(latents, n, self.reader.recall(self.embedding(inputs, token_positions), token_positions))
        thought = self.inner(read.y, n)
        queries = self.queries(token_positions.all_positions(inputs.ids.device)).expand(len(inputs.ids), -1, -1)
        decoded: ForwardOutput = self.decoder(queries, token_positions, self.decoder.recall(thought.y, n), at)
        penalties = [part.penalty for part in (read, thought, decoded) if part.penalty is not None]
        return decoded._replace(penalty=sum(penalties) if penalties else None)

    def logits(self, hidden: Tensor, words: Tensor | None = None, copies: Any = None) -> Tensor:
        return self.head(hidden, words) if words is not None else self.head(hidden)
