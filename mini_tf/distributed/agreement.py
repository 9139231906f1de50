"""What must be the same on all processes of a run."""

from collections.abc import Mapping
from typing import Any

from mini_tf.distributed.group import ProcessGroup
from mini_tf.system.cache import hash_of
from mini_tf.system.errors import RunFault


def refuse_different(group: ProcessGroup, own: Mapping[str, Any]) -> None:
    """Raise RunFault unless all processes have the same values, which are JSON; names are those of the message."""
    everywhere = group.gather({name: hash_of(value) for name, value in own.items()})
    for rank, other in enumerate(everywhere):
        if different := [name for name in own if other[name] != everywhere[0][name]]:
            raise RunFault(
                f"rank {rank} has another {' and '.join(different)} than rank 0", hint="all processes need the same command and files"
            )
