"""The shardings by the words of recipes."""

from mini_tf.parallel.full_sharding import FullSharding
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.sharded_optimizer import OptimizerSharding
from mini_tf.parallel.sharding import Sharding

SHARDINGS: dict[str, type[Sharding]] = {"none": Sharding, "optimizer": OptimizerSharding, "full": FullSharding}
"""By `runtime.shard`."""


def sharding_of(word: str, group: ProcessGroup) -> Sharding:
    """The sharding that `runtime.shard` names; a single process has nothing to divide."""
    return SHARDINGS[word](group) if group.size > 1 else Sharding(group)
