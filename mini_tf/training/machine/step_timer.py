"""Time forward and backward passes of the task on real rows, in any setup, without side effects.

The optimizer step is not included, since it would change the parameters.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import nn

from mini_tf.training.feed import Feed
from mini_tf.training.machine.device import Setup


@dataclass(frozen=True)
class StepTimer:
    """task and feed as in `Training`; the feed's micro_batch_size is ignored."""

    task: nn.Module
    feed: Feed
    clock: Callable[[], float] = time.perf_counter

    def __call__(self, setup: Setup, rows: int, step: int = 0) -> float:
        """Seconds for the first `rows` rows of step number `step`, in micro-batches of the size of `setup`.

        For a step with fewer rows than the largest one, the same share of its rows.
        """
        size = min(rows, setup.micro_batch_size)
        feed = replace(self.feed, micro_batch_size=size)
        batches = feed.micro_batches(step)
        batches = batches[: max(1, len(batches) * rows // self.feed.plan.batch_size)]
        forward = setup.compiled(self.task, feed)
        with restored_after(self.task, setup.device), warnings.catch_warnings():
            if setup.compile:
                warnings.simplefilter("ignore")  # hints of the compiler about performance
            setup.apply()
            self.task.train()
            start = self.clock()
            for batch in batches:
                state = self.task.start(size) if self.feed.plan.stream else None  # type: ignore[operator]
                with setup.autocast():
                    sums = forward(batch.to(setup.device), state)
                loss = torch.stack(list(sums.parts.values())).sum()
                loss.backward()
                loss.item()  # synchronizes the device
            return self.clock() - start


@contextmanager
def restored_after(task: nn.Module, device: torch.device) -> Iterator[None]:
    """Restore gradients and mode of `task`, torch's random state and number of threads on exit."""
    threads, mode = torch.get_num_threads(), task.training
    gradients = [(p, p.grad) for p in task.parameters()]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            for parameter, _ in gradients:
                parameter.grad = None
            yield
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            task.train(mode)
            torch.set_num_threads(threads)
