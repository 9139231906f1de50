"""Build the optimizer of a model: trainable parameters with their roles and learning rates."""

import torch
from torch import nn

from mini_tf import optimizers
from mini_tf.nn.layers.head import OutputLayer
from mini_tf.nn.layers.kernels import FusedLinear
from mini_tf.nn.layers.ngram_features import LinearFeatures
from mini_tf.nn.lora import LowRank
from mini_tf.optimizers import Optimizer, Parameter, Role
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.sharding import Sharding
from mini_tf.recipe.kind_settings import OptimizerSettings
from mini_tf.training.layer_decay import depths, stacks_of


def build(
    settings: OptimizerSettings,
    model: nn.Module,
    matmul_dtype: torch.dtype = torch.float32,
    sharding: Sharding | None = None,
) -> Optimizer:
    """The optimizer of all trainable parameters of `model`, by their names in the model.

    matmul_dtype: dtype of the matrix products of the forward pass. sharding: what processes divide; default nothing.
    """
    return (sharding or Sharding(ProcessGroup())).optimizer(settings, _parameters(settings, model), matmul_dtype)


def state_bytes(settings: OptimizerSettings, model: nn.Module) -> int:
    """Bytes of the optimizer state of `model`, which may be on the meta device."""
    return optimizers.state_bytes(settings, _parameters(settings, model))


def clip_factor(norm: float, largest: float) -> float:
    """The factor that clips a gradient of this norm to `largest`; 1 if it is smaller or `largest` is 0."""
    return min(1.0, largest / (norm + 1e-6)) if largest > 0 else 1.0


def _parameters(settings: OptimizerSettings, model: nn.Module) -> dict[str, Parameter]:
    """The trainable parameters; a fused matrix has its split sizes."""
    roles = roles_of(model)
    depth = depths(model)
    split_sizes = {
        f"{name}.weight": part.sizes for name, part in model.named_modules() if isinstance(part, FusedLinear)
    }

    def lr_scale(name: str) -> float:
        return settings.lr_of(roles[name]) / settings.lr * settings.layer_decay ** depth[name]

    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    return {name: Parameter(p, roles[name], lr_scale(name), split_sizes.get(name, ())) for name, p in trainable.items()}


def roles_of(model: nn.Module) -> dict[str, Role]:
    """The role of every parameter; a tied embedding is an embedding, not a head."""
    named = dict(model.named_parameters())
    embeddings = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    embeddings |= {id(named[one.embedding]) for one in stacks_of(model) if one.embedding in named}
    adapters = {id(p) for part in model.modules() if isinstance(part, LowRank) for p in part.parameters()}
    features = {id(p) for part in model.modules() if isinstance(part, LinearFeatures) for p in part.parameters()}
    heads = {id(part.linear.weight) for part in model.modules() if isinstance(part, OutputLayer)} - embeddings
    roles: dict[str, Role] = {}
    for name, p in model.named_parameters():
        if id(p) in features:
            roles[name] = "features"
        elif id(p) in embeddings:
            roles[name] = "embedding"
        elif id(p) in heads:
            roles[name] = "head"
        elif id(p) in adapters:
            roles[name] = "adapter"
        else:
            roles[name] = "matrix" if p.dim() == 2 else "vector"
    return roles
