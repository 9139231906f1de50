"""What is constant over all steps of training."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from mini_tf.optimizers import Optimizer
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.reduction import Reduction
from mini_tf.parallel.sharding import Sharding
from mini_tf.training.divergence import Tolerance
from mini_tf.training.feed import Feed
from mini_tf.training.machine.device import Setup
from mini_tf.training.schedule import TrainingSchedule


@dataclass(frozen=True)
class Training:
    """Everything that is constant over all steps.

    task: the module of `Objective.task`. For a stream, `task.start(rows)` returns the initial state and
    `task.carry(state)` is what the next rows need of it. clip: largest gradient norm, 0 = no clipping. tolerance:
    non-finite steps to skip, largest loss allowed. weights: weight of each part of the loss; 1 if absent. reduction:
    how the gradients of micro-batches and processes are added. sharding: what processes divide among them. warn: prints
    a line if steps cannot be captured in CUDA graphs as `setup` says; their results are the same.
    """

    task: nn.Module
    feed: Feed
    optimizer: Optimizer
    schedule: TrainingSchedule
    setup: Setup
    seed: int = 0
    clip: float = 0.0
    tolerance: Tolerance = field(default_factory=Tolerance)
    weights: Mapping[str, float] = field(default_factory=dict)
    reduction: Reduction = field(default_factory=lambda: Reduction((), ProcessGroup()))
    sharding: Sharding = field(default_factory=lambda: Sharding(ProcessGroup()))
    warn: Callable[[str], None] = print
