"""Times forward and backward passes of the real task on real rows in any setup, without side effects.

The optimizer is not timed, since it would change the weights.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from mini_tf.training.feed import Feed
from mini_tf.training.machine.device import Setup


@dataclass(frozen=True)
class StepTimer:
    """task and feed as in `Training`; the feed's own micro_batch_size is not used."""

    task: nn.Module
    feed: Feed
    clock: Callable[[], float] = time.perf_counter

    def __call__(self, setup: Setup, rows: int, turn: int = 0) -> float:
        """Seconds for the first `rows` rows of step number `turn`, in micro-batches of the setup's size.

        Of a step with fewer rows than the largest it takes the same share.
        """
        size = min(rows, setup.micro_batch_size)
        batches = replace(self.feed, micro_batch_size=size).micro_batches(turn)
        batches = batches[: max(1, len(batches) * rows // self.feed.plan.batch_size)]
        forward: Callable[..., Any] = self._compiled if setup.compile else self.task
        with untouched(self.task, setup.device):
            setup.apply()
            self.task.train()
            began = self.clock()
            for batch in batches:
                state = self.task.start(size) if self.feed.plan.stream else None  # type: ignore[operator]
                with setup.autocast():
                    sums = forward(batch.to(setup.device), state)
                loss = torch.stack(list(sums.parts.values())).sum()
                loss.backward()
                loss.item()  # waits for the device
            return self.clock() - began

    @cached_property
    def _compiled(self) -> Callable[..., Any]:
        compiled = Setup(compile=True).compiled(self.task)

        def quietly(*given: Any) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the compiler's own warnings about speed; the timer measures it
                return compiled(*given)

        return quietly


@contextmanager
def untouched(task: nn.Module, device: torch.device) -> Iterator[None]:
    """Within it `task` may compute gradients; afterwards gradients, mode, random state and threads are restored."""
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
