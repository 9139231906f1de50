"""All weights of a model: initialization, names as in files, selection by patterns, models without memory.

    embedding or matrix                    normal, standard deviation init_std
    projection to the residual stream      init "scaled": the same / sqrt(number of such projections)    (GPT-2)
                                           init "zero":   0, so that every layer is the identity at first
    untied output layer                    init "zero":   0, so that the first loss is exactly log(V)
    bias                                   0;   norm: scale 1, bias 0

Other parameters belong to a mixer or positional encoding, whose constructor initializes them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mini_tf.recipe.values import show
from mini_tf.system.errors import RecipeFault

Init = Literal["scaled", "zero"]


@torch.no_grad()
def init_weights(
    module: nn.Module,
    residual_outputs: list[nn.Linear],
    head: nn.Linear | None,
    std: float,
    how: Init,
    n_passes: int = 1,
) -> None:
    """Initialize `module`; head: an untied output layer.

    residual_outputs: the projections to the residual stream, each of which is applied `n_passes` times in a forward
    pass.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            part.weight.normal_(0.0, std)
            if isinstance(part, nn.Linear) and part.bias is not None:
                part.bias.zero_()
    for linear in residual_outputs:
        linear.weight.mul_(0.0 if how == "zero" else max(1, len(residual_outputs) * n_passes) ** -0.5)
    if head is not None and how == "zero":
        head.weight.zero_()


def unique_tensors(module: nn.Module, excluding: nn.Module | None = None) -> dict[str, Tensor]:
    """Parameters and buffers by name, tied ones once by their first name, without those of `excluding`; not copies."""
    excluded = set() if excluding is None else {id(tensor) for _, tensor in _all_tensors(excluding)}
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in _all_tensors(module):
        named.setdefault(id(tensor), (name, tensor))
    return {name: tensor.detach() for number, (name, tensor) in named.items() if number not in excluded}


def copy_tensors(tensors: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    """Copy each tensor of `source` that `tensors` names into the tensor of that name, which must have its shape."""
    for name, tensor in tensors.items():
        tensor.copy_(source[name])


def _all_tensors(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """As `state_dict(keep_vars=True)`, which cuts the weights that torch's FSDP has gathered."""
    for name, tensor in {**module._parameters, **module._buffers}.items():
        if tensor is not None and name not in module._non_persistent_buffers_set:
            yield prefix + name, tensor
    for name, child in module._modules.items():
        if child is not None:
            yield from _all_tensors(child, f"{prefix}{name}.")


_SHOWN = 6


def match_names(
    key: str, patterns: Sequence[str], names: Sequence[str], noun: str, all_match: bool = True
) -> list[str]:
    """The names that match one of the patterns (* ? [seq], of the whole name), in their order.

    key, noun: for messages, such as "train.freeze" and "parameter". Raises RecipeFault for a pattern that matches no
    name; without `all_match` only if no pattern matches.
    """
    matching = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names) and (not matching or all_match):
            raise RecipeFault(f"{key}: no {noun} matches {show(pattern)}; there are {_listed(pattern, names)}")
    return matching


def _listed(pattern: str, names: Sequence[str]) -> str:
    """Some of the names, those most similar to the pattern first."""
    nearest = get_close_matches(pattern[:200], names, n=_SHOWN, cutoff=0.3)
    shown = [*nearest, *(name for name in names if name not in nearest)][:_SHOWN]
    more = len(names) - len(shown)
    return (", ".join(shown) or "none") + (f" and {more} more" if more else "")


Built = TypeVar("Built")
_FILLS = {"normal_", "uniform_", "kaiming_uniform_", "trunc_normal_", "bernoulli_"}


class _SkipInit(TorchFunctionMode):
    """Skips random initialization, which has no effect on the meta device and imports a second's worth of torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _FILLS:
            return next(iter((*args, *(kwargs or {}).values())))  # the tensor; torch.nn.init passes it by name
        return func(*args, **(kwargs or {}))


def on_meta_device(build: Callable[[], Built]) -> Built:
    """The result of `build` with tensors that have shape and dtype but no data; random generators are not advanced."""
    with torch.device("meta"), _SkipInit():
        return build()


def with_new_rows(
    tensors: Mapping[str, Tensor], weights: Mapping[str, Tensor], size: int, pieces: Mapping[int, Sequence[int]]
) -> dict[str, Tensor]:
    """Those of the tensors that have a row for each of `size` ids, with a row for each further one, the mean of the
    rows of its `pieces`; where the tensor of this name in `weights` has as many rows.
    """
    extended: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() and len(tensor) == size and weights[name].shape == (size + len(pieces), *tensor.shape[1:]):
            rows = [tensor[list(pieces[id])].mean(0) for id in sorted(pieces)]
            extended[name] = torch.cat([tensor, torch.stack(rows)])
    return extended
