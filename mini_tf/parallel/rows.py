"""Tensors whose rows are divided among processes, as torch's DTensor; other tensors are whole on every process.

torch's modules for them take half a second to import, so functions do it.
"""

from typing import Any

import torch
from torch import Tensor


def is_divided(tensor: Tensor) -> bool:
    return hasattr(tensor, "device_mesh")  # of DTensor alone


def own_rows(tensor: Tensor) -> Tensor:
    """The rows of this process, not copied; of a whole tensor all."""
    divided: Any = tensor
    return divided.to_local().detach() if is_divided(tensor) else tensor.detach()


def divided_as(other: Tensor, own: Tensor) -> Tensor:
    """The tensor of which `own` has the rows of this process, of the shape of `other` and divided as it is."""
    from torch.distributed.tensor import DTensor, Shard

    if not isinstance(other, DTensor):
        return own
    return DTensor.from_local(
        own, other.device_mesh, [Shard(0)], run_check=False, shape=other.shape, stride=other.stride()
    )


@torch.no_grad()
def copy_whole(tensor: Tensor, whole: Tensor) -> None:
    """Copy a whole tensor into one that may be divided; not collective."""
    if not is_divided(tensor):
        tensor.copy_(whole)
        return
    mesh: Any = tensor.device_mesh  # type: ignore[attr-defined]
    parts, rank = whole.chunk(mesh.size()), mesh.get_local_rank()
    if rank < len(parts):  # the last processes may have no rows
        own_rows(tensor).copy_(parts[rank])


def gathered(tensor: Tensor) -> Tensor:
    """The whole tensor, on every process; collective."""
    divided: Any = tensor
    return divided.full_tensor() if is_divided(tensor) else tensor
