"""A matrix's second moments as the product of those of its rows and columns: Adafactor without its own learning rates.

Source: Shazeer and Stern 2018, arXiv:1804.04235, algorithm 4. Memory: R + C numbers for a matrix (R, C).
"""

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from mini_tf.optimizers import Optimizer, OptimizerSettings, Parameter


class Settings(OptimizerSettings):
    beta: float = Field(0.9, ge=0, lt=1)
    """How slowly the moments forget."""

    def moments(self, parameter: Parameter) -> dict[str, Tensor]:
        if parameter.tensor.dim() != 2:
            return {"square": parameter.zeros()}
        n_rows, n_columns = parameter.tensor.shape
        return {"rows": parameter.zeros(n_rows), "columns": parameter.zeros(n_columns)}

    def build(self, parameters: Mapping[str, Parameter], matmul_dtype: torch.dtype = torch.float32) -> "Factored":
        return Factored(self, parameters)


class Factored(Optimizer):
    def __init__(self, settings: Settings, parameters: Mapping[str, Parameter]) -> None:
        super().__init__(settings, parameters)
        self.settings = settings

    def update(self, parameters: Mapping[str, Parameter], lr: float) -> None:
        for name, p in parameters.items():
            moments, square = self.state[name], p.grad.square() + 1e-30
            if "square" in moments:
                estimate = moments["square"].lerp_(square, 1 - self.settings.beta)
            else:
                rows = moments["rows"].lerp_(square.mean(dim=1), 1 - self.settings.beta)
                columns = moments["columns"].lerp_(square.mean(dim=0), 1 - self.settings.beta)
                estimate = rows[:, None] * columns / rows.mean()
            p.tensor.mul_(1 - lr * p.lr_scale * self.settings.weight_decay_of(p))
            p.tensor.sub_(lr * p.lr_scale * p.grad / (estimate.sqrt() + 1e-8))
