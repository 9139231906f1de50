"""AdamW: Adam with decoupled weight decay.

Source: Loshchilov and Hutter 2019, arXiv:1711.05101. Memory: two tensors per parameter.
"""

from collections.abc import Mapping

import torch

from mini_tf.optimizers import Parameter
from mini_tf.optimizers._adam import AdamSettings, AdamW


class Settings(AdamSettings):
    def build(self, parameters: Mapping[str, Parameter], matmul_dtype: torch.dtype = torch.float32) -> AdamW:
        return AdamW(self, parameters)
