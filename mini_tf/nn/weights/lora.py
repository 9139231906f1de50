"""LoRA: a weight W stays as it is, and what is learnt is a narrow product beside it, W + (alpha / rank) B A.

It is a parametrization of the weight: whoever reads `linear.weight` gets the sum, and nothing else in a model knows of it. The
optimizer keeps moments of A and B only; the gradient of the whole sum is still made, so a step is hardly faster than without.
A is drawn uniformly within 1 / sqrt(d_in), as in the authors' code, so that the rates that are known to work do so here (the
paper draws from a normal distribution); B is 0, so that a model begins as it was. Of several matrices joined into one, each
has an A and a B of its own. Source: Hu et al. 2021, arXiv:2106.09685, section 4.1.
"""

from collections.abc import Collection, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from mini_tf.nn.layers.fused_linear import FusedLinear
from mini_tf.nn.model import Model
from mini_tf.nn.weights.patterns import match_names
from mini_tf.recipe.sections import Adapter

_ORIGINAL, _NARROW = ".parametrizations.weight.original", ".parametrizations.weight.0."


class LowRank(nn.Module):
    """W -> W + scale B A, for each part of the rows of W; A[i] is (rank, d_in), B[i] (rows[i], rank)."""

    def __init__(self, weight: Float[Tensor, "N D"], rows: Sequence[int], rank: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        d_in = weight.shape[1]
        self.A = nn.ParameterList(weight.new_empty(rank, d_in).uniform_(-(d_in**-0.5), d_in**-0.5) for _ in rows)
        self.B = nn.ParameterList(weight.new_zeros(n, rank) for n in rows)

    def forward(self, weight: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        return _sum(weight, list(self.A), list(self.B), self.scale)


def adapt(model: nn.Module, settings: Adapter, learning: Collection[str] = ()) -> list[str]:
    """Give every linear map that the targets name an adapter, freeze all else, and return the maps' names.

    learning: parameters that go on learning as a whole, such as those of a head that was drawn anew; they get no adapter. Nor does
    a table that the embedding shares: the sum of the one would be the other's as well. RecipeFault where a target matches nothing.
    """
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    linears = {name: part for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    if any(map(parametrize.is_parametrized, linears.values())):
        raise ValueError("the model has an adapter already; merge it first")
    free = [name for name, part in linears.items() if id(part.weight) not in tables and f"{name}.weight" not in learning]
    names = match_names(
        "adapter.targets", settings.targets or _of_all_stacks(model), free, "linear map", all_match=settings.targets is not None
    )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in learning)
    for name in names:
        linear = linears[name]
        rows = linear.sizes if isinstance(linear, FusedLinear) else (linear.out_features,)
        added = LowRank(linear.weight, rows, settings.rank, settings.alpha / settings.rank)
        # "unsafe" leaves out a trial of it, which on the meta device imports a second's worth of torch.
        parametrize.register_parametrization(linear, "weight", added, unsafe=True)
    return names


def _of_all_stacks(model: nn.Module) -> list[str]:
    assert isinstance(model, Model), "only a model declares its stacks"
    return [f"{one.name}.*" for one in model.stacks()]


@torch.no_grad()
def merge(model: nn.Module) -> None:
    """Make a plain model of an adapted one: the same names as before `adapt`, the same outputs to the bit. Who is frozen stays so."""
    for part in model.modules():
        if isinstance(part, nn.Linear) and parametrize.is_parametrized(part, "weight"):
            shared = type(part)  # by its copies, and torch takes the parametrization out of the class itself
            part.__class__ = type(shared.__name__, shared.__bases__, dict(vars(shared)))
            parametrize.remove_parametrizations(part, "weight", leave_parametrized=True)


@torch.no_grad()
def merged_weights(weights: Mapping[str, Tensor], settings: Adapter) -> dict[str, Tensor]:
    """What `merge` makes of the weights of a model, without the model; those of a plain one are returned as they are."""
    merged: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if name.endswith(_ORIGINAL):
            narrow = name.removesuffix(_ORIGINAL) + _NARROW
            n_parts = sum(other.startswith(f"{narrow}A.") for other in weights)
            a, b = ([weights[f"{narrow}{matrix}.{part}"] for part in range(n_parts)] for matrix in "AB")
            merged[plain_name(name)] = _sum(tensor, a, b, settings.alpha / settings.rank)
        elif _NARROW not in name:
            merged[name] = tensor
    return merged


def plain_name(name: str) -> str:
    """What a tensor of an adapted model is called in the plain one; A and B, which that one lacks, keep their names."""
    return f"{name.removesuffix(_ORIGINAL)}.weight" if name.endswith(_ORIGINAL) else name


def _sum(weight: Tensor, a: Sequence[Tensor], b: Sequence[Tensor], scale: float) -> Tensor:
    """In the weights' own type whatever autocast says: a merged model would else be another one."""
    rows = weight.split([len(part) for part in b])
    with torch.autocast(weight.device.type, enabled=False):
        return torch.cat([torch.addmm(w, of_b, of_a, alpha=scale) for w, of_a, of_b in zip(rows, a, b, strict=True)])
