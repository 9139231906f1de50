"""Next token by a margin: the score of the token that follows is to exceed that of every other one by 1.

The sum over the text of max(0, 1 + the best other score - the right one). Source: Crammer and Singer 2001, JMLR 2,
section 3.
"""

from typing import Any

import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.nn.model import Model
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import LossSums, Objective, ObjectiveSettings


class Settings(ObjectiveSettings):
    SUPPORTS = frozenset({"causal"})
    PIPELINE = "text_generation"
    PREDICTS, METRICS = frozenset({"tokens"}), ("accuracy",)

    def build(self, vocabulary: Any, labels: Any = None) -> "Margin":
        return Margin(self)


class Margin(Objective):
    lookahead = 1

    def prepare(self, rows: Rows) -> Batch:
        ids, segments = torch.from_numpy(rows.ids).long(), torch.ones(rows.ids.shape, dtype=torch.long)
        if rows.segments is not None:
            segments = torch.from_numpy(rows.segments).long()
        at = ((segments[:, :-1] != 0) & (segments[:, 1:] != 0)).flatten().nonzero().squeeze(1)
        tokens = int((segments[:, :-1] != 0).sum())
        inputs = Tokens(ids[:, :-1], TokenPositions.packed(segments[:, :-1]))
        return Batch(
            inputs, ids[:, 1:].flatten()[at], at, counts={"margin": len(at), "tokens": tokens, "penalty": tokens}
        )

    def task(self, model: Model) -> nn.Module:
        return Scored(model)


class Scored(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        mixed = self.model(batch.inputs, at=batch.target_positions)
        scores: Tensor = self.model.logits(mixed.y).float()
        right = scores.gather(1, batch.labels[:, None])
        best = scores.scatter(1, batch.labels[:, None], -torch.inf).amax(1, keepdim=True)
        parts = {"margin": (1 + best - right).clamp(min=0).sum()}
        if mixed.penalty is not None:
            parts["penalty"] = mixed.penalty
        return LossSums(parts, {"accuracy": ((right > best).sum(), len(right))}, None)
