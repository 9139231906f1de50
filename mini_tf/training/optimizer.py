"""The contract of every optimizer, and which one moves which parameter.

A parameter has one of five roles: `matrix` (a product inside the layers), `embedding` (a table that is looked up), `head` (the
untied output table, of words or of a task's answers), `adapter` (a narrow matrix of LoRA) and `vector` (norms, biases and all
else). Their learning rates may differ. Muon moves matrices, but no adapters: it makes a product's whole change orthogonal, and
of B A it would see the factors; the gradient of A is 0 at first, of which it would make a full step out of rounding.
"""

from collections.abc import Mapping
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from mini_tf.nn.answer import Answer
from mini_tf.nn.head import Head
from mini_tf.nn.joined import Joined
from mini_tf.nn.lora import LowRank
from mini_tf.recipe.sections import Optimizer as Settings
from mini_tf.training.adamw import AdamW
from mini_tf.training.layer_decay import depths
from mini_tf.training.muon import Muon

Role = Literal["matrix", "embedding", "head", "adapter", "vector"]

IMPLEMENTATION = 1
"""Counts up where a step's arithmetic changes: a run that was begun with another one does not continue to the same bits."""


class Optimizer(Protocol):
    """What the loop and the run folder ask of every optimizer."""

    def grad_norm(self) -> Tensor:
        """The global norm of the gradient, as a tensor without axes: nothing waits for the device."""

    def step(self, lr: float, grad_factor: float = 1.0) -> None:
        """Move every parameter that has a gradient; the gradient is multiplied by `grad_factor` first (clipping)."""

    def zero_grad(self) -> None: ...

    def state_tensors(self) -> dict[str, Tensor]:
        """All there is to save, by parameter name: the tensors themselves, not copies."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `state_tensors` gave; ValueError where names, shapes or types differ."""


def build(settings: Settings, model: nn.Module, products: torch.dtype = torch.float32) -> Optimizer:
    """The optimizer of a recipe, for all parameters of `model` that learn. Its names are the model's names.

    products: the type that Muon multiplies in.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    roles = roles_of(model)
    depth = depths(model)
    rates = {name: _rate_of(roles[name], settings) / settings.lr * settings.layer_decay ** depth[name] for name in named}
    muons = {name: p for name, p in named.items() if settings.kind == "muon" and roles[name] == "matrix"}
    rest = {name: p for name, p in named.items() if name not in muons}
    adamw = AdamW(rest, settings, {name for name in rest if roles[name] in ("embedding", "vector")}, rates=rates)
    return Muon(muons, _rows_of_parts(model), settings, adamw, products, rates) if muons else adamw


def clip_factor(norm: float, largest: float) -> float:
    """What brings a gradient of this norm down to `largest`; 1 where it is smaller, or where `largest` is 0."""
    return min(1.0, largest / (norm + 1e-6)) if largest > 0 else 1.0


def roles_of(model: nn.Module) -> dict[str, Role]:
    """The role of every parameter; a table that embeds and scores (a tied one) is an embedding."""
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    narrow = {id(p) for part in model.modules() if isinstance(part, LowRank) for p in part.parameters()}
    heads = {id(part.linear.weight) for part in model.modules() if isinstance(part, Head | Answer)} - tables
    roles: dict[str, Role] = {}
    for name, p in model.named_parameters():
        if id(p) in tables:
            roles[name] = "embedding"
        elif id(p) in heads:
            roles[name] = "head"
        elif id(p) in narrow:
            roles[name] = "adapter"
        else:
            roles[name] = "matrix" if p.dim() == 2 else "vector"
    return roles


def _rate_of(role: Role, settings: Settings) -> float:
    """An adapter's is that of vectors, which with muon are AdamW's too."""
    return settings.rate_of("vector" if role == "adapter" else role)


def _rows_of_parts(model: nn.Module) -> dict[str, list[int]]:
    """For each matrix that is several joined into one: how many rows belong to each."""
    return {f"{name}.weight": list(part.sizes) for name, part in model.named_modules() if isinstance(part, Joined)}
