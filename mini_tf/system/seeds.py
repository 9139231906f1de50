"""Random seeds derived from the recipe's seed and a purpose, so there is no generator state to save."""

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def seed_of(*parts: int | str) -> int:
    """A 64-bit seed, a fixed hash of its parts: seed_of(seed, "refresh", 3). 1 and "1" differ."""
    text = json.dumps([part if isinstance(part, str) else int(part) for part in parts])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def seed_generators(seed: int, device: "torch.device") -> None:
    """`torch.manual_seed` for the CPU and one device. torch seeds all kinds of devices, and formats the stack for each
    that is not there: half a millisecond, more than the kernels of a small model take on a GPU.
    """
    import torch

    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
