"""The output layer of a detector, a logit per token, and its score: the area under the ROC curve."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mini_tf.nn.layers.head import OutputLayer


class DetectionHead(OutputLayer):
    """dense -> GELU -> one logit per token, as in the discriminator of ELECTRA (Clark et al. 2020, released code)."""

    def __init__(self, d_model: int, std: float) -> None:
        super().__init__()
        self.dense, self.linear = nn.Linear(d_model, d_model), nn.Linear(d_model, 1)
        for layer in (self.dense, self.linear):
            layer.weight.data.normal_(0.0, std)
            layer.bias.data.zero_()
        self.std = std

    def arguments(self) -> Mapping[str, Any]:
        return {"d_model": self.dense.in_features, "std": self.std}

    def forward(
        self, hidden: Float[Tensor, "*at D"], candidates: Int[Tensor, " W"] | None = None
    ) -> Float[Tensor, "*at 1"]:
        if candidates is not None:
            raise ValueError("a detection head has no vocabulary")
        logit: Tensor = self.linear(F.gelu(self.dense(hidden)))
        return logit


def area_under_curve(scores: np.ndarray, positive: np.ndarray) -> float | None:
    """Area under the ROC curve: the probability that a positive has a higher score than a negative, ties count half.

    scores, positive (N,). From the rank sum (Mann and Whitney 1947); None without positives or without negatives.
    """
    n_positive = int(positive.sum())
    pairs = n_positive * (len(positive) - n_positive)
    if not pairs:
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # the mean rank of equal scores, from 1
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / pairs)
