"""Which run a command is: its recipe and the contents of its files, the same on every process that trains it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from mini_tf.data.datasets import TokenizedData
from mini_tf.jobs import initial
from mini_tf.jobs.assembling import load_data
from mini_tf.jobs.session import Reporter
from mini_tf.parallel.group import ProcessGroup, refuse_different
from mini_tf.parallel.reduction import REDUCTIONS
from mini_tf.recipe.reading import Resolved
from mini_tf.run.identity import Identity
from mini_tf.run.location import RunLocation, explicit_folder, versions


@dataclass(frozen=True)
class Options:
    """Options of a training command beside the recipe."""

    location: RunLocation = field(default_factory=RunLocation)
    extend: int | None = None
    command: tuple[str, ...] = ()
    tensorboard: bool = False
    check: Callable[[TokenizedData], None] = lambda data: None
    """Raises before training if the data do not fit the command."""
    group: ProcessGroup = field(default_factory=ProcessGroup)
    """The processes that train together."""
    stop_at: int | None = None
    """The step after which training stops, saved and to be continued."""


def identify(resolved: Resolved, options: Options, reporter: Reporter) -> tuple[Identity, TokenizedData]:
    """The identity of a recipe's run, by the contents of all files that it reads, and its tokenized data.

    If the run of model.init_from no longer exists, its hash and tokenizers are read from the run at the location of the
    options. Several processes prepare the data together.
    """
    REDUCTIONS[resolved.recipe.runtime.reduce].refuse(options.group)
    folder = explicit_folder(options.location)
    init = initial.init_hash(resolved.recipe, folder)  # before the data, which may take long to read
    data = load_data(initial.with_own_tokenizer(resolved.recipe, folder), reporter, options.group)
    identity = Identity.of(resolved, data.hashes | init)
    same = {"recipe": [identity.decides, identity.recipe], "data": identity.hashes, "software": versions()}
    refuse_different(options.group, same)
    return identity, data
