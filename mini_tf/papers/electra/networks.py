"""ELECTRA's generator, a small masked language model that shares embeddings with the model, and the detector's head.

Source: Clark et al. 2020, "ELECTRA", arXiv:2003.10555, sections 2 and 3.2.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mini_tf.nn.layers.embedding import Embedding
from mini_tf.nn.layers.head import OutputLayer
from mini_tf.nn.layers.kernels import cumulative_sum
from mini_tf.nn.model import Model
from mini_tf.system.errors import RecipeFault

Tying = Literal["none", "embeddings", "all"]


def embedding_of(model: Model) -> Embedding:
    """The embedding of a model of one stack. Raises RecipeFault for other models."""
    stacks = model.stacks()
    if len(stacks) == 1 and stacks[0].embedding is not None:
        embedding = model.get_submodule(stacks[0].embedding)
        if isinstance(embedding, Embedding):
            return embedding
    raise RecipeFault(
        "objective.proposal: a generator needs a model that is an embedding, one stack and a head",
        hint="model.kind=encoder",
    )


def build_generator(model: Model, width: float, depth: float, tying: Tying) -> Model:
    """An encoder with shares of the width and depth of `model`, and BERT's masked-LM head tied to its embedding.

    Its embedding tables are as wide as those of `model`; where it is narrower, they are projected. tying: modules
    shared with `model`; all: every layer but the head. The weights are drawn from torch's generator.
    """
    shared = embedding_of(model)
    settings, [stack] = model.settings, model.stacks()
    tables = {"d_embedding": settings.d_embedding or settings.d_model, "subwords": 0}
    smaller = settings.scaled(width, depth).model_copy(update={"head": "bert", "tied": True, **tables})
    generator = smaller.build(shared.tokens.num_embeddings, model.context)
    if tying == "all":
        setattr(generator, str(stack.embedding), shared)
        setattr(generator, stack.name, stack.stack)
    elif tying == "embeddings":
        mine = embedding_of(generator)
        mine.tokens, mine.ngrams, mine.types, mine.norm = shared.tokens, shared.ngrams, shared.types, shared.norm
        mine.subwords = shared.subwords  # others would have to be told the texts of the tokens
        if shared.position.applies_to == {"embed"}:  # others have weights per head
            mine.position = shared.position
    if tying != "none":
        generator.head.linear.weight = shared.tokens.weight  # type: ignore[union-attr]
    return generator


@torch.no_grad()
def sample(logits: Tensor, uniform: Tensor, excluded: Tensor) -> Tensor:
    """Ids (T,), drawn from softmax(logits) without the `excluded` ones, by inversion of the cumulative distribution.

    logits (T, V). uniform (T,): numbers in [0, 1), one per row. excluded: True where an id is never drawn; (V,) or (T,
    V).
    """
    below = cumulative_sum(logits.float().masked_fill(excluded, -torch.inf).softmax(-1), -1)
    total = below[:, -1:]
    # Rounding must not lead beyond the last id with a probability.
    at = torch.minimum(uniform.float()[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(below, at, right=True).squeeze(1)


class DetectionHead(OutputLayer):
    """dense -> GELU -> one logit per token, as in the discriminator of ELECTRA (Clark et al. 2020, released code)."""

    def __init__(self, d_model: int, std: float) -> None:
        super().__init__()
        self.dense, self.linear = nn.Linear(d_model, d_model), nn.Linear(d_model, 1)
        for layer in (self.dense, self.linear):
            layer.weight.data.normal_(0.0, std)
            layer.bias.data.zero_()
        self.std = std

    def arguments(self) -> Mapping[str, Any]:
        return {"d_model": self.dense.in_features, "std": self.std}

    def forward(
        self, hidden: Float[Tensor, "*at D"], candidates: Int[Tensor, " W"] | None = None
    ) -> Float[Tensor, "*at 1"]:
        if candidates is not None:
            raise ValueError("a detection head has no vocabulary")
        logit: Tensor = self.linear(F.gelu(self.dense(hidden)))
        return logit
