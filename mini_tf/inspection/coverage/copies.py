"""What a model with copy attention copies: p_gen and the source position of each output token.

The probability that a token is copied from source position i is (1 - p_gen) a_i.
Source: See, Liu, Manning 2017, arXiv:1704.04368, section 2.2.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mini_tf.inspection.model_input import ModelInput
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.tokens import Tokens
from mini_tf.trained.opening import Trained


@dataclass(frozen=True, eq=False)
class CopyMap:
    """p_gen (L,): the probability that a token is generated; copied (L, M): that it is copied from a source position.

    label (L,): the probability of the target's own token, and copied_label (L,) the part of it that copying has.
    """

    p_gen: np.ndarray
    copied: np.ndarray
    label: np.ndarray
    copied_label: np.ndarray

    @property
    def best(self) -> list[int | None]:
        """The source position that each token is most probably copied from; None if there is nothing to copy."""
        return [int(row.argmax()) if row.any() else None for row in self.copied]

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name).tolist() for name in ("p_gen", "copied", "label", "copied_label")}


@torch.no_grad()
def copy_map(trained: Trained, source: ModelInput, target: ModelInput) -> CopyMap | None:
    """Of one pair: each token of the target at the position before it, then the separator.

    None without copy attention.
    """
    inputs, read = (torch.tensor([one.ids], device=trained.setup.device) for one in (target, source))
    output: ForwardOutput = trained.model(Tokens(inputs), Tokens(read))
    if output.copies is None:
        return None
    copied = (output.copies.log_attention + torch.nn.functional.logsigmoid(-output.copies.gate)[..., None]).exp()[0]
    labels = inputs[0].roll(-1)[:, None]  # the separator, which begins the input, ends the target
    label = trained.model.logits(output.y, copies=output.copies)[0].exp().gather(1, labels).squeeze(1)
    parts = (output.copies.gate[0].sigmoid(), copied, label, copied.where(read == labels, 0).sum(dim=1))
    return CopyMap(*(part.double().cpu().numpy() for part in parts))
