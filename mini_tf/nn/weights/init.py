"""Initialization of parameters.

    embedding or matrix                    normal, standard deviation init_std
    projection to the residual stream      init "scaled": the same / sqrt(number of such projections)    (GPT-2)
                                           init "zero":   0, so that every layer is the identity at first
    untied output layer                    init "zero":   0, so that the first loss is exactly log(V)
    bias                                   0;   norm: scale 1, bias 0

Other parameters belong to a mixer or positional encoding, whose constructor initializes them.
"""

from typing import Literal

import torch
from torch import nn

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
