"""The same weights for every side, from the plain model's names to minitf's and nanoGPT's; and equal work, checked.

`{i}` is a layer's number.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from .contest import device

CLOSE = {"cpu": 1e-4, "cuda": 0.03}
"""Nats by which losses on the same weights and batch may differ: in fp32, and on a GPU, where all compute in bf16."""

MINITF = {
    "tokens.weight": "embedding.tokens.weight",
    "positions.weight": "embedding.position.table.weight",
    "types.weight": "embedding.types.weight",
    "layers.{i}.attention.qkv": "stack.layers.{i}.self_attn.part.qkv",
    "layers.{i}.attention.out": "stack.layers.{i}.self_attn.part.out",
    "layers.{i}.norm1": "stack.layers.{i}.self_attn.norm",
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


@torch.no_grad()
def copy(plain: nn.Module, into: nn.Module, names: Mapping[str, str]) -> None:
    """Give `into` the weights of the plain model. Raises KeyError where a name is in neither."""
    theirs = dict(into.named_parameters())
    for name, tensor in plain.named_parameters():
        theirs.pop(_name(name, names)).copy_(tensor)
    if theirs:
        raise KeyError(f"{[*theirs]}: the plain model has no such weights")


def _name(name: str, names: Mapping[str, str]) -> str:
    """What a plain tensor is called there: by its whole name, or by that of its module."""
    number = name.split(".")[1] if name.startswith("layers.") else ""
    general = name.replace(f"layers.{number}.", "layers.{i}.") if number else name
    module, _, kind = general.rpartition(".")
    theirs = names[general] if general in names else f"{names[module]}.{kind}"
    return theirs.replace("{i}", number)


class UnequalWork(Exception):
    """Two sides that are to be compared do not compute the same."""


def check_equal(losses: Sequence[float], expected: Sequence[float], who: str) -> None:
    """Raises UnequalWork where a loss differs by more than CLOSE says from the plain model's, as far as both go."""
    for step, (loss, theirs) in enumerate(zip(losses, expected, strict=False), start=1):
        if not abs(loss - theirs) <= CLOSE[device()]:
            raise UnequalWork(
                f"{who}: loss {loss:.6f} at step {step}, the plain model's is {theirs:.6f}: not equal work"
            )
