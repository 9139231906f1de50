"""Memory: whether the model fits, from its parameters, and the largest micro-batch that fits, measured on one row.

The micro-batch size changes memory and speed, not the result, so `auto` takes the largest.
"""

import os
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.sharding import Sharding
from mini_tf.recipe.kind_settings import OptimizerSettings
from mini_tf.system.errors import RecipeFault
from mini_tf.system.limits import limits
from mini_tf.training.feed import Feed
from mini_tf.training.machine.device import Setup
from mini_tf.training.optimizer import state_bytes

_SAMPLED_STEPS = 8
_SHARE = 0.5  # of free memory, because the backward pass adds gradients of activations


def fitting_micro_batch(
    task: nn.Module, feed: Feed, setup: Setup, group: ProcessGroup | None = None
) -> tuple[int, str]:
    """The micro-batch size for `auto`, and the reason. feed: with a micro-batch size of 1."""
    # With train.batch_tokens steps differ; the first may have few or short rows.
    first = replace(feed, assigned=lambda n_rows: range(1))
    steps = [(first.micro_batches(step)[0], feed.n_micro_of(step)) for step in range(_SAMPLED_STEPS)]
    free = free_share(setup.device, group or ProcessGroup())
    row, n_rows = max(steps, key=lambda step: step[1] * step[0].inputs.ids.shape[1])
    row = row.to(setup.device)
    row_bytes = saved_bytes(lambda: task(row, None), setup, task) * n_rows // feed.plan.batch_size
    size = largest_micro_batch(feed.plan.batch_size, row_bytes, free, feed.plan.even)
    return size, f"activations of {size} rows take {size * row_bytes / 2**20:.0f} MiB; {free / 2**20:.0f} MiB are free"


def rows_that_fit(task: nn.Module, feed: Feed, setup: Setup, error: BaseException) -> int | None:
    """The micro-batch size for which a GPU has memory, measured after it ran out of it; None: unknown, or not a GPU.

    error: the failure, whose frames keep activations. A safe share of the memory, as in `fitting_micro_batch`.
    """
    if setup.device.type != "cuda":
        return None
    traceback.clear_frames(error.__traceback__)
    torch.cuda.empty_cache()
    try:
        return fitting_micro_batch(task, replace(feed, micro_batch_size=1, assigned=range), setup)[0]
    except RuntimeError:  # not even one row fits
        return None


def saved_bytes(forward: Callable[[], Any], setup: Setup, task: nn.Module) -> int:
    """Bytes of tensors that `forward` saves for the backward pass, without the parameters of `task`."""
    known = {p.untyped_storage()._cdata for p in task.parameters()}  # tensors without data have no address
    sizes: dict[int, int] = {}
    alive: list[torch.UntypedStorage] = []  # since a reused address would be counted once

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            sizes[storage._cdata] = storage.nbytes()
            alive.append(storage)
        return tensor.detach()  # an output that its own node keeps would keep the graph, and its memory, for ever

    devices = [setup.device] if setup.device.type == "cuda" else []
    with (
        torch.random.fork_rng(devices),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        setup.autocast(),
    ):
        forward()
    return sum(sizes.values())


def refuse_too_large(model: nn.Module, optimizer: OptimizerSettings, device: torch.device, sharding: Sharding) -> None:
    """Raise RecipeFault if parameters, gradients and optimizer state need more than the free memory; model may be on
    the meta device. Collective: all processes have measured before one uses memory.

    Frozen parameters have no gradients and no optimizer state.
    """
    parameters = sum(p.numel() for p in model.parameters())
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    needed = sharding.bytes_of(4 * parameters, 4 * trainable, state_bytes(optimizer, model))
    needed += sharding.gathered_bytes(model)
    if device.type != "cuda":
        needed = max(needed, 4 * parameters)  # every process makes the whole model there before it is divided
    group = sharding.group
    free = min(group.all_gather(free_share(device, group)))
    if needed > free * limits().memory_percent / 100:
        need = f"need at least {needed / 2**30:,.1f} GiB with gradients and optimizer state"
        need += group.several(" in each of {n} processes")
        free_memory = f"{free / 2**30:,.1f} GiB are free{group.several(' for each')}"
        hint = "a smaller model.d_model, model.n_layers, model.ngrams or tokenizer.vocab_size"
        raise RecipeFault(f"model: {parameters:,} parameters {need}; {free_memory}", hint=hint)


def free_share(device: torch.device, group: ProcessGroup) -> int:
    """`free_bytes` for one process: each has a GPU of its own, and those of one machine share its memory."""
    return free_bytes(device) // (1 if device.type == "cuda" else group.process.local_world_size)


def free_bytes(device: torch.device) -> int:
    """Free memory of the GPU, else the lesser of the machine's and the container's."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min(_machine_bytes(), _container_bytes(Path("/sys/fs/cgroup")))


def largest_micro_batch(batch_size: int, row_bytes: int, free: int, even: bool = True) -> int:
    """The largest micro-batch size that needs at most a safe share of `free` bytes; at least 1.

    even: it must divide `batch_size`.
    """
    sizes = (-(-batch_size // n) for n in range(1, batch_size + 1) if not even or batch_size % n == 0)
    return next((size for size in sizes if size * row_bytes <= free * _SHARE), 1)


def _machine_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # macOS has neither; half of the physical memory is a safe guess
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _container_bytes(cgroup: Path) -> int:
    """Free memory of the control group (version 2 or 1); a large number if unlimited."""
    second = (cgroup, "memory.max", "memory.current")
    first = (cgroup / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
    for folder, limit, used in (second, first):
        try:
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            cached = int(
                stat.get("total_inactive_file", stat.get("inactive_file", 0))
            )  # page cache, reclaimed when needed
            return max(0, int((folder / limit).read_text()) - int((folder / used).read_text()) + cached)
        except (OSError, ValueError):  # no such file, or the word "max"
            continue
    return 1 << 62
