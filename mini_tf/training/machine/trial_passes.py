"""Forward and backward passes on the first rows of a run, before its first step: their time, and whether they compile.

Without side effects: a trial changes neither weights nor gradients nor random state, and has no optimizer step.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch
from mini_tf.nn.state import State, detach
from mini_tf.objectives import LossSums
from mini_tf.system.errors import Unavailable, compiler_reason, is_out_of_memory
from mini_tf.training.feed import Feed
from mini_tf.training.machine.device import CHANGED, EXPLICIT, RECORDED, Setup, missing_compiler


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
                loss, _ = _forward_backward(forward, batch, setup, state)
                loss.item()  # synchronizes the device
            return self.clock() - start


def _forward_backward(
    forward: Callable[..., LossSums], batch: Batch, setup: Setup, state: State | None
) -> tuple[Tensor, LossSums]:
    with setup.autocast():
        sums = forward(batch.to(setup.device), state)
    loss = torch.stack([*sums.parts.values()]).sum()
    loss.backward()
    return loss, sums


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


def compile_failure(task: nn.Module, feed: Feed, setup: Setup) -> str | None:
    """Why torch.compile fails on `task`, forward and backward; None if it works, or if memory runs out.

    Raises what the same rows raise without the compiler. Changes neither weights nor gradients nor random state. The
    rows are the same at every start, also of a resumed run, so that the same graphs are compiled first.
    """
    with restored_after(task, setup.device), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hints of the compiler about performance
        task.train()
        try:
            _first_steps(task, feed, setup)
            return None
        except Exception as error:  # of the compiler, or of data and task
            failure = None if is_out_of_memory(error) else compiler_reason(error)
        if failure is not None:
            try:
                _first_steps(task, feed, replace(setup, compile=False))
            except Exception as error:
                if not is_out_of_memory(error):  # which the first step reports, with the micro-batch that fits
                    raise
    return failure


def _first_steps(task: nn.Module, feed: Feed, setup: Setup) -> None:
    """Forward and backward pass of a micro-batch; of two for a stream, whose first rows have an empty state."""
    forward, state = setup.compiled(task, feed), None
    for step in range(2 if feed.plan.stream else 1):
        for batch in feed.micro_batches(step)[:1]:
            state = task.start(len(batch.inputs.ids)) if state is None and feed.plan.stream else state  # type: ignore[operator]
            _, sums = _forward_backward(forward, batch, setup, state)
            state = None if sums.state is None else task.carry(detach(sums.state))  # type: ignore[operator]


def without_failing_compiler(setup: Setup, reason: str | None) -> Setup:
    """The setup, not compiled if torch.compile fails for this reason.

    Raises Unavailable if the recipe demands it.
    """
    if reason is None:
        return setup
    fault, origin = f"torch.compile does not work here: {reason}", setup.reasons["compile"]
    if origin == EXPLICIT:
        hint = "`minitf doctor --compile` tries it on a small function; runtime.compile=false trains without it"
        raise Unavailable(f"runtime.compile: {fault}", hint=hint)
    return setup.without("compile", f"{fault}{CHANGED if origin == RECORDED else ''}")


def sample_failure(device: torch.device) -> str | None:
    """Why torch.compile fails on a small function, forward and backward; None if it computes what torch computes."""
    if missing := missing_compiler(device):
        return missing

    def gradient(function: Callable[[Tensor], Tensor]) -> Tensor:
        x = torch.linspace(-1, 1, 64, device=device, requires_grad=True)
        return torch.autograd.grad(function(x), x)[0]

    def sample(x: Tensor) -> Tensor:
        return (x.sin() * x).sum()

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            equal = torch.allclose(gradient(torch.compile(sample)), gradient(sample), atol=1e-5)
    except Exception as error:  # of the compiler, a driver or a full disk
        return compiler_reason(error)
    return None if equal else "a compiled function computes something else"
