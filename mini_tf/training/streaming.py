"""Recurrent state of a stream (`train.stream`) at the start of training: initial, or from a checkpoint."""

from copy import deepcopy

import torch
from torch import nn

from mini_tf.data.batch import Batch
from mini_tf.nn.state import State, move
from mini_tf.system.errors import RunFault, is_bug
from mini_tf.training.feed import Feed
from mini_tf.training.machine.device import Setup


def initial_states(
    task: nn.Module, feed: Feed, setup: Setup, step: int, saved: State | None
) -> dict[int, State | None]:
    """The state of each micro-batch of this process after `step` steps; empty without `train.stream`.

    saved: that of all micro-batches. Raises RunFault if it does not fit.
    """
    own = feed.own(feed.n_micro)
    if not feed.plan.stream:
        return {}
    if saved is None:
        if step:
            raise RunFault(f"the stream state after step {step} is missing", hint="--fresh starts over")
        return {micro: task.start(feed.micro_batch_size) for micro in own}  # type: ignore[operator]
    if saved.keys() != {str(micro) for micro in range(feed.n_micro)}:
        size = feed.plan.batch_size // len(saved)
        raise RunFault(
            f"the stream was saved in micro-batches of {size} rows; train.micro_batch_size is {feed.micro_batch_size}",
            hint=f"train.micro_batch_size={size}",
        )
    batches = zip(own, feed.micro_batches(step), strict=True)
    return {micro: _validated(task, setup, batch, saved[str(micro)], micro) for micro, batch in batches}


def _validated(task: nn.Module, setup: Setup, batch: Batch, saved: object, micro: int) -> State | None:
    """A saved state on the device, validated by a forward pass from a copy: only the model knows which are valid."""
    try:
        if not isinstance(saved, dict):
            raise TypeError("not a dict of tensors")
        state = move(saved, setup.device)
        with torch.no_grad(), setup.autocast():
            task(batch.to(setup.device), deepcopy(state))
    except Exception as error:
        if not is_bug(error):
            raise
        reason = next(iter(str(error).splitlines()), "")[:200]
        raise RunFault(f"the stream state of micro-batch {micro + 1} does not fit the model: {reason}") from error
    return state
