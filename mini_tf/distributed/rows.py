"""Tensors whose rows are divided among processes, as torch's DTensor; other tensors are whole on every process."""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard


def own_rows(tensor: Tensor) -> Tensor:
    """The rows of this process, not copied; of a whole tensor all."""
    return tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor.detach()


def divided_as(other: Tensor, own: Tensor) -> Tensor:
    """The tensor of which `own` has the rows of this process, of the shape of `other` and divided as it is."""
    if not isinstance(other, DTensor):
        return own
    return DTensor.from_local(own, other.device_mesh, [Shard(0)], run_check=False, shape=other.shape, stride=other.stride())


@torch.no_grad()
def copy_whole(tensor: Tensor, whole: Tensor) -> None:
    """Copy a whole tensor into one that may be divided; not collective."""
    if isinstance(tensor, DTensor):
        parts, rank = whole.chunk(tensor.device_mesh.size()), tensor.device_mesh.get_local_rank()
        if rank < len(parts):  # the last processes may have no rows
            own_rows(tensor).copy_(parts[rank])
    else:
        tensor.copy_(whole)


def gathered(tensor: Tensor) -> Tensor:
    """The whole tensor, on every process; collective."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
