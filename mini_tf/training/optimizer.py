"""The trainable parameters of a model: which are frozen, their roles and learning rates, and their optimizer.

Layer-wise learning rate decay: a parameter at depth d below the output has the learning rate lr * decay^d. Source:
Clark et al. 2020, "ELECTRA", arXiv:2003.10555, appendix B; Howard and Ruder 2018, arXiv:1801.06146, 3.2.
"""

from collections.abc import Sequence

import torch
from torch import nn

from mini_tf import optimizers
from mini_tf.nn.layers.head import OutputLayer
from mini_tf.nn.layers.kernels import FusedLinear
from mini_tf.nn.layers.ngram_features import LinearFeatures
from mini_tf.nn.lora import LowRank, plain_name
from mini_tf.nn.model import Model
from mini_tf.nn.model_stack import ModelStack
from mini_tf.nn.objective_network import ModelWithObjective
from mini_tf.nn.weights import match_names
from mini_tf.optimizers import Optimizer, Parameter, Role
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.sharding import Sharding
from mini_tf.recipe.kind_settings import OptimizerSettings
from mini_tf.system.errors import RecipeFault


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

    def ids_in(kind: type[nn.Module]) -> set[int]:
        return {id(p) for part in model.modules() if isinstance(part, kind) for p in part.parameters()}

    named = dict(model.named_parameters())
    declared = {id(named[stack.embedding]) for stack in stacks_of(model) if stack.embedding in named}
    ids_of: dict[Role, set[int]] = {  # a parameter has the first role that fits
        "features": ids_in(LinearFeatures),
        "embedding": ids_in(nn.Embedding) | declared,
        "head": {id(part.linear.weight) for part in model.modules() if isinstance(part, OutputLayer)},
        "adapter": ids_in(LowRank),
    }

    def role_of(p: nn.Parameter) -> Role:
        by_shape: Role = "matrix" if p.dim() == 2 else "vector"
        return next((role for role, ids in ids_of.items() if id(p) in ids), by_shape)

    return {name: role_of(p) for name, p in named.items()}


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Freeze the parameters whose names match a pattern, and return their names.

    Call it after `lora.adapt` (adapted matrices keep their plain names) and before the optimizer is built. A tied
    embedding has the embedding's name. Raises RecipeFault if a pattern matches nothing or everything gets frozen.
    """
    parameters = {plain_name(name): parameter for name, parameter in model.named_parameters()}
    frozen = match_names("train.freeze", patterns, list(parameters), "parameter")
    for name in frozen:
        parameters[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        fault = "train.freeze: all parameters are frozen, at least one must be trainable"
        raise RecipeFault(fault, hint="remove a pattern")
    return frozen


def stacks_of(model: nn.Module) -> Sequence[ModelStack]:
    """The stacks that a model declares; empty for another module."""
    return model.stacks() if isinstance(model, Model | ModelWithObjective) else ()


def depths(model: nn.Module) -> dict[str, int]:
    """The depth of every parameter: head and final norm 0, last layer 1, the one before 2, ..., embeddings one more
    than the first layer.

    Encoder and decoder each count from their own last layer, since every decoder layer attends to the output of the
    encoder's last layer. A shared embedding counts as the decoder's. A layer that is applied several times counts once.
    """
    stacks = stacks_of(model)
    depth_by_name: dict[str, int] = {}
    for name, _ in model.named_parameters():
        for stack in stacks:
            n_layers = len(stack.stack.layers)
            if any(f"{name}.".startswith(f"{path}.") for path in stack.embedding_paths()):
                depth_by_name.setdefault(name, stack.n_above + n_layers + 1)
            for layer in range(n_layers):
                if name.startswith(f"{stack.name}.layers.{layer}."):
                    depth_by_name.setdefault(name, stack.n_above + n_layers - layer)
        depth_by_name.setdefault(name, 0)
    return depth_by_name
