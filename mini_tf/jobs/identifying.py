"""Which run a command is: its recipe and the contents of its files, the same on every process that trains it."""

import hashlib
import json
from typing import Any

from mini_tf.data.datasets import TokenizedData
from mini_tf.distributed.group import ProcessGroup
from mini_tf.distributed.reduction import REDUCTIONS
from mini_tf.jobs.assembling import load_data
from mini_tf.jobs.options import Options
from mini_tf.jobs.session import Reporter
from mini_tf.recipe.reading import Resolved
from mini_tf.recipe.sections import Runtime
from mini_tf.run.identity import Identity
from mini_tf.run.opening import explicit_folder, versions
from mini_tf.system.errors import RunFault
from mini_tf.trained import initial


def identify(resolved: Resolved, options: Options, reporter: Reporter) -> tuple[Identity, TokenizedData]:
    """The identity of a recipe's run, by the contents of all files that it reads, and its tokenized data.

    If the run of model.init_from no longer exists, its hash and tokenizers are read from the run at the location of the
    options. Of several processes one on each machine prepares the data, and the others find them in the cache.
    """
    REDUCTIONS[resolved.recipe.runtime.reduce].refuse(options.group.size)
    folder = explicit_folder(options.location)
    init = initial.init_hash(resolved.recipe, folder)  # before the data, which may take long to read
    with options.group.in_turn():
        data = load_data(initial.with_own_tokenizer(resolved.recipe, folder), reporter)
    identity = Identity.of(resolved, data.hashes | init)
    _refuse_different(options.group, identity)
    return identity, data


def numerics(group: ProcessGroup, runtime: Runtime) -> dict[str, Any]:
    """What of several processes decides the last bits of a result, as in `check_exact`."""
    if runtime.reduce == "tree":
        return {}
    how = {"reduce": runtime.reduce} | ({"shard": runtime.shard} if runtime.shard == "full" else {})
    return {"processes": group.size} | (how if group.size > 1 else {})


def _refuse_different(group: ProcessGroup, identity: Identity) -> None:
    """Raise RunFault unless all processes have the same recipe, data and software."""
    own = {"recipe": [identity.decides, identity.recipe], "data": identity.hashes, "software": versions()}
    everywhere = group.gather({name: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest() for name, value in own.items()})
    for rank, other in enumerate(everywhere):
        if different := [name for name in own if other[name] != everywhere[0][name]]:
            raise RunFault(
                f"rank {rank} has another {' and '.join(different)} than rank 0", hint="all processes need the same command and files"
            )
