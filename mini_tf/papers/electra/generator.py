"""ELECTRA's generator: a small masked language model that shares embeddings with the model, and sampling from logits.

Source: Clark et al. 2020, "ELECTRA", arXiv:2003.10555, sections 2 and 3.2.
"""

from typing import Literal

import torch
from torch import Tensor

from mini_tf.nn.layers.embedding import Embedding
from mini_tf.nn.layers.kernels import cumulative_sum
from mini_tf.nn.model import Model, ModelSettings
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


def generator_settings(model: ModelSettings, width: float, depth: float) -> ModelSettings:
    """Settings of an encoder with shares of the width and depth of `model`, with tables as wide as those of `model`."""
    changed = {"d_embedding": model.d_embedding or model.d_model, "head": "bert", "tied": True, "subwords": 0}
    return model.scaled(width, depth).model_copy(update=changed)


def build_generator(model: Model, width: float, depth: float, tying: Tying) -> Model:
    """An encoder with shares of the width and depth of `model`, and BERT's masked-LM head tied to its embedding.

    Its embedding tables are as wide as those of `model`; where it is narrower, they are projected. tying: modules
    shared with `model`; all: every layer but the head. The weights are drawn from torch's generator.
    """
    shared = embedding_of(model)
    generator = generator_settings(model.settings, width, depth).build(shared.tokens.num_embeddings, model.context)
    [stack] = model.stacks()
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
