"""How every parameter starts: one table.

    table or matrix                        normal, standard deviation init_std
    matrix that writes into the residual   init "scaled": the same / sqrt(number of such matrices)    (GPT-2)
                                           init "zero":   0, so that every layer starts as the identity
    output head that is not tied           init "zero":   0, so that the first loss is exactly log(V)
    bias                                   0;   norm: scale 1, shift 0
Parameters of other shapes belong to a mixer or position and start as that module's constructor left them.
"""

from typing import Literal

import torch
from torch import nn

Init = Literal["scaled", "zero"]


@torch.no_grad()
def init_weights(
    module: nn.Module, residual_outputs: list[nn.Linear], head: nn.Linear | None, std: float, how: Init, n_passes: int = 1
) -> None:
    """Fill the parameters of `module`; `residual_outputs` write into the residual stream, `n_passes` times each, `head` is an untied output
    head or None."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            part.weight.normal_(0.0, std)
            if isinstance(part, nn.Linear) and part.bias is not None:
                part.bias.zero_()
    for writer in residual_outputs:
        writer.weight.mul_(0.0 if how == "zero" else max(1, len(residual_outputs) * n_passes) ** -0.5)
    if head is not None and how == "zero":
        head.weight.zero_()
