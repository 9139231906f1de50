"""What the processes of a run divide among them: nothing, the optimizer state, or weights and gradients as well.

This file is the contract, `choice` has the word of each. Source: Rajbhandari et al. 2020, "ZeRO", arXiv:1910.02054,
stages 1 and 3.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mini_tf.nn.weights import copy_tensors
from mini_tf.optimizers import Optimizer, OptimizerSettings, Parameter
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.reduction import REDUCTIONS, Reduction


class Sharding:
    """`none`, and the contract of the others; a single process has this one."""

    DIVIDES = ""
    """What is divided, in words."""
    divides_weights = False

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group

    def bytes_of(self, weights: int, gradients: int, state: int) -> int:
        """Bytes on each process of what has so many bytes in all."""
        return weights + gradients + state

    def gathered_bytes(self, task: nn.Module) -> int:
        """Bytes that a process has beside `bytes_of` while it computes; task may be on the meta device."""
        return 0

    def place(self, task: nn.Module, device: torch.device) -> None:
        """Move the module, whole on every process, to the device; called once, before the optimizer is built."""
        task.to(device)

    def optimizer(
        self, settings: OptimizerSettings, parameters: Mapping[str, Parameter], matmul_dtype: torch.dtype
    ) -> Optimizer:
        optimizer: Optimizer = settings.build(parameters, matmul_dtype)
        return optimizer

    def reduction(self, kind: str, optimizer: Optimizer) -> Reduction:
        """The sum of the gradients of its parameters; kind: `runtime.reduce`."""
        return REDUCTIONS[kind]([p.tensor for p in optimizer.parameters.values()], self.group)

    def collect(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """`ProcessGroup.collect` of weights or of the optimizer's state."""
        return self.group.collect(tensors)

    def copy(self, tensors: Mapping[str, Tensor], source: Mapping[str, Tensor]) -> None:
        """`copy_tensors` of whole tensors into weights; not collective."""
        copy_tensors(tensors, source)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Within it all weights are whole on every process, each of which may call the model as often as it likes.

        Collective. Weights that the block changes are as before after it.
        """
        yield
