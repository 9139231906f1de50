"""Parameters and buffers of a module by name, as stored in files: tied ones once."""

from collections.abc import Iterator, Mapping

from torch import Tensor, nn


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
