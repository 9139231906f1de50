"""A trial: how long forward and backward of the real task take on real rows, in any setup; nothing of it stays.

What is timed is a training step without its optimizer: to step would change the weights.
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
    """task and feed as in `Training`; the feed's own micro_batch_size plays no part."""

    task: nn.Module
    feed: Feed
    clock: Callable[[], float] = time.perf_counter

    def __call__(self, setup: Setup, rows: int, turn: int = 0) -> float:
        """Seconds that the first `rows` rows of step number `turn` take, in passes as large as `setup` has them.

        Of a step of fewer rows than the largest it is the same part of the step.
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
                warnings.simplefilter("ignore")  # what a compiler says of its own speed, the clock is going to tell
                return compiled(*given)

        return quietly


@contextmanager
def untouched(task: nn.Module, device: torch.device) -> Iterator[None]:
    """Within it `task` may compute gradients; then these, its mode, torch's random numbers and threads are as before."""
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
