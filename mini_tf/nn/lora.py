"""LoRA: a frozen weight W plus a trained low-rank product, W + (alpha / rank) B A.

It is a parametrization of the weight (`torch.nn.utils.parametrize`), so every use of `linear.weight` gets the sum. The
optimizer has state for A and B only; the gradient of the whole sum is still computed, so a step is hardly faster than
full fine-tuning. A is drawn uniformly within 1 / sqrt(d_in), as in the authors' code, so usual learning rates apply
(the paper has a normal distribution); B is 0. Each part of a fused matrix has its own A and B.
Source: Hu et al. 2021, arXiv:2106.09685, section 4.1.
"""

from collections.abc import Collection, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from mini_tf.nn.layers.kernels import FusedLinear
from mini_tf.nn.model import Model
from mini_tf.nn.weights import match_names
from mini_tf.recipe.sections import Adapter

_ORIGINAL, LOW_RANK = ".parametrizations.weight.original", ".parametrizations.weight.0."


class LowRank(nn.Module):
    """W -> W + scale B A for each part of the rows of W; A[i] is (rank, d_in), B[i] (rows[i], rank)."""

    def __init__(self, weight: Float[Tensor, "N D"], rows: Sequence[int], rank: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        d_in = weight.shape[1]
        self.A = nn.ParameterList(weight.new_empty(rank, d_in).uniform_(-(d_in**-0.5), d_in**-0.5) for _ in rows)
        self.B = nn.ParameterList(weight.new_zeros(n, rank) for n in rows)

    def forward(self, weight: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        return _sum(weight, list(self.A), list(self.B), self.scale)


def adapt(model: nn.Module, settings: Adapter, trainable: Collection[str] = ()) -> list[str]:
    """Add LoRA to every linear layer that the targets match, freeze all other parameters, and return the layers' names.

    trainable: parameters that stay fully trainable, such as those of a new head; they get no adapter, nor does a weight
    tied to the embedding, which would change with it. Raises RecipeFault if a target matches nothing.
    """
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    linears = {name: part for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    if any(map(parametrize.is_parametrized, linears.values())):
        raise ValueError("the model has an adapter already; merge it first")
    candidates = [
        name for name, part in linears.items() if id(part.weight) not in tables and f"{name}.weight" not in trainable
    ]
    names = match_names(
        "adapter.targets",
        settings.targets or _all_stacks(model),
        candidates,
        "linear layer",
        all_match=settings.targets is not None,
    )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in trainable)
    for name in names:
        linear = linears[name]
        rows = linear.sizes if isinstance(linear, FusedLinear) else (linear.out_features,)
        added = LowRank(linear.weight, rows, settings.rank, settings.alpha / settings.rank)
        # "unsafe" skips a test call, which on the meta device imports a second's worth of torch.
        parametrize.register_parametrization(linear, "weight", added, unsafe=True)
    return names


def _all_stacks(model: nn.Module) -> list[str]:
    assert isinstance(model, Model), "only a Model has stacks"
    return [f"{stack.name}.*" for stack in model.stacks()]


@torch.no_grad()
def merge(model: nn.Module) -> None:
    """Merge the adapters into the weights, under the names they had before `adapt`; outputs are bit-identical.

    Frozen parameters stay frozen.
    """
    for part in model.modules():
        if isinstance(part, nn.Linear) and parametrize.is_parametrized(part, "weight"):
            shared = type(part)  # copies share the class, which torch modifies when it removes the parametrization
            part.__class__ = type(shared.__name__, shared.__bases__, dict(vars(shared)))
            parametrize.remove_parametrizations(part, "weight", leave_parametrized=True)


@torch.no_grad()
def merged_weights(weights: Mapping[str, Tensor], settings: Adapter) -> dict[str, Tensor]:
    """The weights after `merge`, computed without a model; weights without adapters are returned unchanged."""
    merged: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if name.endswith(_ORIGINAL):
            prefix = name.removesuffix(_ORIGINAL) + LOW_RANK
            n_parts = sum(other.startswith(f"{prefix}A.") for other in weights)
            a, b = ([weights[f"{prefix}{matrix}.{part}"] for part in range(n_parts)] for matrix in "AB")
            merged[plain_name(name)] = _sum(tensor, a, b, settings.alpha / settings.rank)
        elif LOW_RANK not in name:
            merged[name] = tensor
    return merged


def plain_name(name: str) -> str:
    """Name of an adapted model's tensor in the merged model; A and B keep their names."""
    return f"{name.removesuffix(_ORIGINAL)}.weight" if name.endswith(_ORIGINAL) else name


def _sum(weight: Tensor, a: Sequence[Tensor], b: Sequence[Tensor], scale: float) -> Tensor:
    """weight + scale B A, in the dtype of the weight even under autocast, so that merging does not change outputs."""
    rows = weight.split([len(part) for part in b])
    with torch.autocast(weight.device.type, enabled=False):
        return torch.cat([torch.addmm(w, b_i, a_i, alpha=scale) for w, a_i, b_i in zip(rows, a, b, strict=True)])
