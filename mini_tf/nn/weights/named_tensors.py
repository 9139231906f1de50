"""Parameters and buffers of a module by name, as stored in files: tied ones once."""

from collections.abc import Mapping

from torch import Tensor, nn


def unique_tensors(module: nn.Module, excluding: nn.Module | None = None) -> dict[str, Tensor]:
    """Parameters and buffers by name, tied ones once by their first name, without those of `excluding`; not copies."""
    excluded = set() if excluding is None else {id(tensor) for tensor in excluding.state_dict(keep_vars=True).values()}
    named: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        named.setdefault(id(tensor), (name, tensor))
    return {name: tensor.detach() for number, (name, tensor) in named.items() if number not in excluded}


def copy_tensors(tensors: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
    """Copy each tensor of `source` that `tensors` names into the tensor of that name, which must have its shape."""
    for name, tensor in tensors.items():
        tensor.copy_(source[name])
