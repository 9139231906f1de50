"""What the rows of a stream remember when training starts: nothing yet, or what a checkpoint kept, which is tried before it is believed."""

from copy import deepcopy

import torch
from torch import nn

from mini_tf.data.batch import Batch
from mini_tf.nn.state import State, move
from mini_tf.system.error_conversion import is_bug
from mini_tf.system.errors import RunFault
from mini_tf.training.feed import Feed
from mini_tf.training.machine.device import Setup


def states_at(task: nn.Module, feed: Feed, setup: Setup, step: int, saved: State | None) -> list[State | None]:
    """The state of each micro-batch after `step` steps; None for each where nothing streams. RunFault where `saved` cannot be theirs."""
    if not feed.plan.stream:
        return [None] * feed.n_micro
    if saved is None:
        if step:
            raise RunFault(f"what the stream remembered after step {step} was not kept", hint="--fresh starts over")
        return [task.start(feed.micro_batch_size) for _ in range(feed.n_micro)]  # type: ignore[operator]
    if saved.keys() != {str(micro) for micro in range(feed.n_micro)}:
        size = feed.plan.batch_size // len(saved)
        raise RunFault(
            f"the stream was saved in micro-batches of {size} rows; train.micro_batch_size is {feed.micro_batch_size}",
            hint=f"train.micro_batch_size={size}",
        )
    return [_tried(task, setup, batch, saved[str(micro)], micro) for micro, batch in enumerate(feed.micro_batches(step))]


def _tried(task: nn.Module, setup: Setup, batch: Batch, saved: object, micro: int) -> State | None:
    """A state on its device, after the task has gone on from a copy of it: nothing else knows what fits a model."""
    try:
        if not isinstance(saved, dict):
            raise TypeError("it is no state")
        state = move(saved, setup.device)
        with torch.no_grad(), setup.autocast():
            task(batch.to(setup.device), deepcopy(state))
    except Exception as error:
        if not is_bug(error):
            raise
        what = next(iter(str(error).splitlines()), "")[:200]
        raise RunFault(f"what micro-batch {micro + 1} of the stream remembered does not fit the model: {what}") from error
    return state
