"""The shardings by the words of recipes."""

from mini_tf.distributed.group import ProcessGroup
from mini_tf.training.sharding import Sharding
from mini_tf.training.sharding.full import FullSharding
from mini_tf.training.sharding.sharded_optimizer import OptimizerSharding

SHARDINGS: dict[str, type[Sharding]] = {"none": Sharding, "optimizer": OptimizerSharding, "full": FullSharding}
"""By `runtime.shard`."""


def sharding_of(word: str, group: ProcessGroup) -> Sharding:
    """The sharding that `runtime.shard` names; a single process has nothing to divide."""
    return SHARDINGS[word](group) if group.size > 1 else Sharding(group)
