"""The same weights for every side: from the plain model's names to minitf's, nanoGPT's and Hugging Face's; and equal
work, checked.

`{i}` is a layer's number. A name may stand for several tensors (q, k, v) that are parts of the plain one, in their
order.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import nn

from .contest import device

CLOSE = {"cpu": 1e-4, "cuda": 0.03}
"""Nats by which losses on the same weights and batch may differ: in fp32, and on a GPU, where all compute in bf16."""

MINITF = {
    "tokens.weight": "embedding.tokens.weight",
    "positions.weight": "embedding.position.table.weight",
    "types.weight": "embedding.types.weight",
    "layers.{i}.attention.qkv": "stack.layers.{i}.own.part.qkv",
    "layers.{i}.attention.out": "stack.layers.{i}.own.part.out",
    "layers.{i}.norm1": "stack.layers.{i}.own.norm",
    "layers.{i}.norm2": "stack.layers.{i}.feed_forward.norm",
    "layers.{i}.up": "stack.layers.{i}.feed_forward.part.up",
    "layers.{i}.down": "stack.layers.{i}.feed_forward.part.down",
}
MINITF_GPT = MINITF | {"norm.weight": "stack.norm.weight"}
MINITF_BERT = MINITF | {
    "norm": "embedding.norm",
    "dense": "head.transform.dense",
    "head_norm": "head.transform.norm",
    "bias": "head.linear.bias",
}

NANOGPT = {
    "tokens.weight": "transformer.wte.weight",
    "positions.weight": "transformer.wpe.weight",
    "layers.{i}.norm1": "transformer.h.{i}.ln_1",
    "layers.{i}.attention.qkv": "transformer.h.{i}.attn.c_attn",
    "layers.{i}.attention.out": "transformer.h.{i}.attn.c_proj",
    "layers.{i}.norm2": "transformer.h.{i}.ln_2",
    "layers.{i}.up": "transformer.h.{i}.mlp.c_fc",
    "layers.{i}.down": "transformer.h.{i}.mlp.c_proj",
    "norm.weight": "transformer.ln_f.weight",
}
"""Hugging Face's GPT-2 has the same names, with transposed matrices and with biases."""

_OWN = "bert.encoder.layer.{i}.attention.self."
HF_BERT = {
    "tokens.weight": "bert.embeddings.word_embeddings.weight",
    "positions.weight": "bert.embeddings.position_embeddings.weight",
    "types.weight": "bert.embeddings.token_type_embeddings.weight",
    "norm": "bert.embeddings.LayerNorm",
    "layers.{i}.attention.qkv": [_OWN + "query", _OWN + "key", _OWN + "value"],
    "layers.{i}.attention.out": "bert.encoder.layer.{i}.attention.output.dense",
    "layers.{i}.norm1": "bert.encoder.layer.{i}.attention.output.LayerNorm",
    "layers.{i}.up": "bert.encoder.layer.{i}.intermediate.dense",
    "layers.{i}.down": "bert.encoder.layer.{i}.output.dense",
    "layers.{i}.norm2": "bert.encoder.layer.{i}.output.LayerNorm",
    "dense": "cls.predictions.transform.dense",
    "head_norm": "cls.predictions.transform.LayerNorm",
    "bias": "cls.predictions.bias",
}

Names = Mapping[str, str | Sequence[str]]


@torch.no_grad()
def copy(plain: nn.Module, into: nn.Module, names: Names, transposed: bool = False) -> None:
    """Give `into` the weights of the plain model. Vectors of `into` that the plain model lacks (biases) become 0.

    transposed: matrices of the layers are stored the other way round. Raises KeyError where a name is in neither.
    """
    theirs = dict(into.named_parameters())
    left = set(theirs)
    for name, tensor in plain.named_parameters():
        found = list(_names(name, names))
        for their, part in zip(found, tensor.chunk(len(found)), strict=True):
            turned = transposed and part.dim() == 2 and "layers." in name
            theirs[their].copy_(part.T if turned else part)
            left.discard(their)
    for their in left:
        if theirs[their].dim() != 1:
            raise KeyError(f"{their}: the plain model has no such weight")
        theirs[their].zero_()


def _names(name: str, names: Names) -> Iterator[str]:
    """What a plain tensor is called there: by its whole name, or by that of its module."""
    number = name.split(".")[1] if name.startswith("layers.") else ""
    general = name.replace(f"layers.{number}.", "layers.{i}.") if number else name
    module, _, kind = general.rpartition(".")
    found, end = (names[general], "") if general in names else (names[module], f".{kind}")
    for one in [found] if isinstance(found, str) else found:
        yield one.replace("{i}", number) + end


class UnequalWork(Exception):
    """Two sides that are to be compared do not compute the same."""


def check_equal(losses: Sequence[float], expected: Sequence[float], who: str) -> None:
    """Raises UnequalWork where a loss differs by more than CLOSE says from the plain model's, as far as both go."""
    for step, (loss, theirs) in enumerate(zip(losses, expected, strict=False), start=1):
        if not abs(loss - theirs) <= CLOSE[device()]:
            raise UnequalWork(
                f"{who}: loss {loss:.6f} at step {step}, the plain model's is {theirs:.6f}: not equal work"
            )
