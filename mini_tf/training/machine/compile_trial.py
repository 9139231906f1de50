"""A trial of torch.compile on the first rows of a run, before its first step: whether it works here, or why not.

It costs what the first step would cost, since what was compiled is used again: by this process, and from the cache
folder by later ones.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from mini_tf.nn.state import detach
from mini_tf.system.errors import Unavailable, compiler_reason, is_out_of_memory
from mini_tf.training.feed import Feed
from mini_tf.training.machine.device import EXPLICIT, RECORDED, Setup, missing_compiler
from mini_tf.training.machine.step_timer import restored_after


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
            with setup.autocast():
                sums = forward(batch.to(setup.device), state)
            torch.stack([*sums.parts.values()]).sum().backward()
            state = None if sums.state is None else task.carry(detach(sums.state))  # type: ignore[operator]


def without_failing_compiler(setup: Setup, reason: str | None) -> Setup:
    """The setup, not compiled if torch.compile fails for this reason.

    Raises Unavailable if the recipe demands it.
    """
    if reason is None:
        return setup
    if setup.reasons["compile"] == EXPLICIT:
        what = f"runtime.compile: torch.compile does not work here: {reason}"
        raise Unavailable(
            what, hint="`minitf doctor --compile` tries it on a small function; runtime.compile=false trains without it"
        )
    changed = (
        ", unlike at the first start: results may differ in the last bits"
        if setup.reasons["compile"] == RECORDED
        else ""
    )
    return setup.without("compile", f"torch.compile does not work here: {reason}{changed}")


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
