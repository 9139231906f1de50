"""Options of a training command beside the recipe."""

from collections.abc import Callable
from dataclasses import dataclass, field

from mini_tf.data.datasets import TokenizedData
from mini_tf.distributed.group import ProcessGroup
from mini_tf.run.opening import RunLocation


@dataclass(frozen=True)
class Options:
    """Options of a training command beside the recipe."""

    location: RunLocation = field(default_factory=RunLocation)
    extend: int | None = None
    dry_run: bool = False
    command: tuple[str, ...] = ()
    tensorboard: bool = False
    check: Callable[[TokenizedData], None] = lambda data: None
    """Raises before training if the data do not fit the command."""
    group: ProcessGroup = field(default_factory=ProcessGroup)
    """The processes that train together."""
