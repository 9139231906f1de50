"""FLOPs of a call by torch's own counter, with all products computed."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode


def torch_flops(forward: Callable[[], object]) -> int:
    def attention(q: Any, k: Any, v: Any, *rest: object, **options: object) -> int:
        return int(2 * q[0] * q[1] * q[2] * k[2] * (k[3] + v[3]))

    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # which torch does not count
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping={kernel: attention}) as counter:
        forward()
    return int(counter.get_total_flops())
